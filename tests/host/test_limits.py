"""Resource limits: what this host cannot set is refused or named, timeouts end sessions, and usage is stored.

Controllers of cgroup v2 are tested in the virtual machine; a machine that lacks them is what the first tests need.
"""
import os
import subprocess

import pytest

from harness import Daemon, call, cgroup2_mount, one, select, wait_until

POLICY = """version: 1
name: {name}
defaults: {{command: allow, file_write: allow, network: allow, unix_socket: allow, signal: allow}}
{rest}
"""
BUSY = "import time\nend = time.time() + 60\nwhile time.time() < end: pass\n"

no_memory_controller = pytest.mark.skipif(
    os.geteuid() == 0 and "memory" in (cgroup2_mount() / "cgroup.controllers").read_text().split(),
    reason="this host has the controllers")


@pytest.fixture
def policy(work):
    """policy(NAME, TEXT): the options that choose a policy with this text."""

    def options(name, rest):
        path = work / f"{name}.yaml"
        path.write_text(POLICY.format(name=name, rest=rest))
        path.chmod(0o644)
        return ("--policy", str(path))

    return options


@pytest.fixture
def strict_daemon(bin_dir):
    """A daemon whose configuration says nothing of limits that cannot be set."""
    daemon = Daemon(bin_dir, limits="on_unavailable: refuse").start()
    yield daemon
    daemon.close()


def limits_of(events, resource):
    return select(events, kind="limit", resource=resource)


@no_memory_controller
def test_limits_that_cannot_be_set_are_refused_with_what_to_do(strict_daemon, work, policy):
    options = policy("memory", "resource_limits: {max_memory_mb: 100, pids_max: 20}")
    result = strict_daemon.run("touch", "made", cwd=work, options=options)
    assert result.status == 125 and not (work / "made").exists(), result
    message = result.err.decode()
    assert message.count("\n") == 1, message
    for word in ("max_memory_mb", "memory controller", "pids_max", "limits: {on_unavailable: warn}", "agentmond.yaml"):
        assert word in message, message
    assert not strict_daemon.sessions()


@no_memory_controller
def test_best_effort_limits_are_not_refused_and_a_policy_without_limits_runs(strict_daemon, work, policy):
    best = policy("best", "enforcement: best_effort\nresource_limits: {max_memory_mb: 100}")
    assert strict_daemon.run("touch", "made", cwd=work, options=best).status == 0
    assert (work / "made").exists()
    assert strict_daemon.run("true", cwd=work, options=policy("none", "")).status == 0


@no_memory_controller
def test_a_running_session_is_not_given_limits_that_cannot_be_set(strict_daemon, work, policy):
    with strict_daemon.running("sleep", "60", cwd=work, options=policy("none", "")) as (_, name):
        options = policy("memory", "resource_limits: {max_memory_mb: 100}")
        refused = strict_daemon.am("session", "set-policy", *options, name)
        assert refused.status == 1 and b"max_memory_mb" in refused.err, refused
        shown = strict_daemon.session(name)
        assert shown["policy"]["generation"] == 1 and shown["limits"] == []


@no_memory_controller
def test_with_warn_the_session_runs_and_says_what_is_missing(daemon, work, policy):
    options = policy("memory", "resource_limits: {max_memory_mb: 100, net_bandwidth_mbps: 5, session_timeout: 1h}")
    with daemon.running("sleep", "60", cwd=work, options=options) as (_, name):
        shown = daemon.session(name)
        assert shown["limits"] == ["network 5 Mbit/s", "session timeout 1h"]
        rules = {r["rule"]: r for r in shown["policy"]["rules"] if r["rule"].startswith("resource_limits")}
        assert rules["resource_limits.max_memory_mb"]["enforced"] == "none"
        assert "memory controller" in rules["resource_limits.max_memory_mb"]["why"]
        assert rules["resource_limits.net_bandwidth_mbps"]["enforced"] == "kernel"
        assert rules["resource_limits.session_timeout"]["enforced"] == "kernel"
    missing = one(daemon.events(name), kind="session", change="limits_missing")
    assert "max_memory_mb" in missing["detail"] and "net_bandwidth_mbps" not in missing["detail"]


def test_a_session_ends_when_its_time_is_over(daemon, work, policy):
    options = policy("short", "resource_limits: {session_timeout: 2s}")
    result = daemon.run("sleep", "60", cwd=work, options=options)
    assert result.status != 0
    events = daemon.events(result.name)
    assert one(limits_of(events, "session_timeout"), limit=2_000_000_000)
    assert one(events, kind="session", change="ended")["detail"] == "its session timeout of 2s was over"
    assert daemon.session(result.name)["end_reason"] == "its session timeout of 2s was over"


def test_a_session_within_its_time_is_left_alone(daemon, work, policy):
    result = daemon.run("true", cwd=work, options=policy("long", "resource_limits: {session_timeout: 60s}"))
    assert result.status == 0
    assert not limits_of(daemon.events(result.name), "session_timeout")


def test_an_idle_session_ends_and_a_busy_one_does_not(daemon, work, policy, python):
    options = policy("idle", "resource_limits: {idle_timeout: 2s}")
    with daemon.running(*python(BUSY), cwd=work, options=options) as (_, busy):
        idle = daemon.run("sleep", "60", cwd=work, options=options)
        events = daemon.events(idle.name)
        assert one(limits_of(events, "idle_timeout"), limit=2_000_000_000)
        assert daemon.session(idle.name)["end_reason"] == "it was idle for 2s, its idle timeout"
        assert daemon.session(busy)["state"] == "running"


def test_a_timeout_outlives_the_daemon(own_daemon, work, policy):
    options = policy("short", "resource_limits: {session_timeout: 6s}")
    with own_daemon.running("sleep", "60", cwd=work, options=options) as (process, name):
        own_daemon.kill()
        own_daemon.start()
        assert own_daemon.session(name)["state"] == "running"
        assert process.wait(20) != 0
        wait_until(lambda: own_daemon.session(name)["state"] == "ended", 10, "it has ended")
        shown = own_daemon.session(name)
        assert shown["end_reason"] == "its session timeout of 6s was over"
        wait_until(lambda: not own_daemon.cgroup(shown).exists(), 5, "the cgroup is gone")


def test_a_timeout_that_passed_while_no_daemon_ran_ends_the_session_at_once(own_daemon, work, policy):
    options = policy("short", "resource_limits: {session_timeout: 1s}")
    with own_daemon.running("sh", "-c", "trap '' TERM; sleep 60", cwd=work, options=options) as (_, name):
        started = own_daemon.session(name)["started"]
        own_daemon.kill()
        own_daemon.start()
        wait_until(lambda: own_daemon.session(name)["state"] == "ended", 15, "it has ended")
        assert own_daemon.session(name)["started"] == started


def test_a_new_policy_brings_its_timeout(daemon, work, policy):
    with daemon.running("sleep", "60", cwd=work, options=policy("none", "")) as (process, name):
        options = policy("short", "resource_limits: {session_timeout: 1s}")
        assert daemon.am("session", "set-policy", *options, name).status == 0
        process.wait(20)
    assert limits_of(daemon.events(name), "session_timeout")


def test_a_session_that_ends_says_what_it_used(daemon, work, python):
    result = daemon.run(*python("n = 0\nfor i in range(3_000_000): n += i\n"), cwd=work)
    events = daemon.events(result.name)
    usage = one(events, kind="usage")
    assert usage["source"] == "cgroup" and usage["cpu_ns"] > 10_000_000, usage
    assert usage["seq"] < one(events, kind="session", change="ended")["seq"]
    assert daemon.session(result.name)["usage"]["cpu_ns"] == usage["cpu_ns"]
    assert b"used       cpu " in daemon.am("session", "show", result.name).out


def test_a_running_session_shows_what_it_used_so_far(daemon, work, python):
    with daemon.running(*python(BUSY), cwd=work) as (_, name):
        wait_until(lambda: daemon.session(name)["usage"]["cpu_ns"] > 0, 10, "it has used a processor")
        assert daemon.session(name)["usage"]["processes"] >= 1


# Datagrams for the time that it is given, then how many could not be sent.
SENDER = """
import socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
failed = sent = 0
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    for _ in range(50):
        try:
            s.sendto(b"x" * 1000, ("10.78.0.2", 7000))
            sent += 1
        except OSError:
            failed += 1
print(sent, failed)
"""


@pytest.fixture
def network():
    """A network namespace with a device that leads into another one; how a command is run in it."""
    near, far = f"amp{os.getpid()}", f"amq{os.getpid()}"
    commands = [f"netns add {near}", f"netns add {far}", f"link add p0 netns {near} type veth peer name p1 netns {far}",
                f"-n {near} addr add 10.78.0.1/24 dev p0", f"-n {far} addr add 10.78.0.2/24 dev p1",
                f"-n {near} link set p0 up", f"-n {far} link set p1 up"]
    try:
        for command in commands:
            subprocess.run(["ip", *command.split()], check=True)
        yield ["ip", "netns", "exec", near]
    finally:
        for name in (near, far):
            subprocess.run(["ip", "netns", "del", name], check=False)


def test_the_network_rate_holds_also_without_a_daemon_and_reached_it_is_told(own_daemon, work, policy, python, network):
    options = policy("rate", "resource_limits: {net_bandwidth_mbps: 1}")
    run = lambda seconds, name, options: call(network + own_daemon.run_words(*python(SENDER), seconds, name=name, options=options, uid=0),  # noqa: E731
                                              timeout=60, cwd=work)
    control = run("0.5", "free", ("--allow-root",))
    assert control.status == 0 and int(control.out.split()[1]) == 0, control
    result = run("2", "held", (*options, "--allow-root"))
    sent, failed = map(int, result.out.split())
    assert failed == 0 and sent > 1000, result
    events = own_daemon.events("held")
    hits = sum(e["hits"] for e in limits_of(events, "network"))
    # One megabit a second is 125 packets; what goes ahead of it is two of the largest packets.
    assert sent - 1500 < hits < sent, (sent, hits)
    assert limits_of(events, "network")[0]["limit"] == 1
    assert not limits_of(own_daemon.events("free"), "network")
    with own_daemon.running("sleep", "60", options=(*options, "--allow-root"), uid=0) as (_, name):
        cgroup = own_daemon.cgroup(own_daemon.session(name))
        listed = lambda: subprocess.run(["bpftool", "cgroup", "show", str(cgroup)], capture_output=True, check=True).stdout  # noqa: E731
        assert b"am_rate_out" in listed() and b"am_rate_in" in listed()
        own_daemon.kill()
        assert b"am_rate_out" in listed() and b"am_rate_in" in listed()
        own_daemon.start()
        wait_until(lambda: own_daemon.session(name)["limits"] == ["network 1 Mbit/s"], 10, "the next daemon knows it")
        assert listed().count(b"am_rate") == 2
        assert own_daemon.am("session", "set-policy", name, "--policy", "observe").status == 0
        wait_until(lambda: b"am_rate" not in listed(), 10, "it is lifted")
