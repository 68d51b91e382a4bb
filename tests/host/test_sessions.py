"""Sessions are listed, shown and stopped; nothing of them stays."""
import os

from harness import alive, call, one, select, wait_until

# Each child is its own session and deaf to what can be ignored; the pids go to a file.
DEAF = """
import os, signal, time
for s in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT): signal.signal(s, signal.SIG_IGN)
pids = []
for _ in range(40):
    pid = os.fork()
    if pid == 0:
        os.setsid()
        time.sleep(120)
        os._exit(0)
    pids.append(pid)
open("pids.part", "w").write(" ".join(map(str, pids + [os.getpid()])))
os.rename("pids.part", "pids")
time.sleep(120)
"""


def pids_of(work):
    wait_until(lambda: (work / "pids").exists(), 15, "the children run")
    return [int(p) for p in (work / "pids").read_text().split()]


def test_a_running_session_is_listed_with_its_command(daemon, work):
    with daemon.running("sleep", "60", cwd=work) as (_, name):
        row = one(daemon.sessions(), name=name)
        assert row["state"] == "running" and row["origin"] == "run"
        assert row["uid"] == 61001 and row["command"] == ["sleep", "60"]
        assert row["workspace"] == str(work)
        assert row["processes"] == 1


def test_labels_and_workspace_are_kept(daemon, work):
    (work / "w").mkdir()
    result = daemon.run("true", options=("--label", "team=a b", "--label", "k=", "--workspace", str(work / "w")), cwd=work)
    assert result.status == 0, result
    shown = daemon.session(result.name)
    assert shown["labels"] == {"team": "a b", "k": ""}
    assert shown["workspace"] == str(work / "w")


def test_an_ended_session_is_shown_as_ended(daemon, work):
    result = daemon.run("sh", "-c", "exit 4", cwd=work)
    shown = wait_until(lambda: (s := daemon.session(result.name))["state"] == "ended" and s, 10, "it has ended")
    assert shown["end_reason"] and shown["ended"] >= shown["started"]
    assert shown["processes"] == 0


def test_a_session_is_found_by_a_prefix_of_its_id(daemon, work):
    with daemon.running("sleep", "60", cwd=work) as (_, name):
        full = daemon.session(name)["id"]
        assert daemon.session(full)["id"] == full
        prefix = next(full[:n] for n in range(4, len(full) + 1)
                      if len([s for s in daemon.sessions() if s["id"].startswith(full[:n])]) == 1)
        assert daemon.session(prefix)["id"] == full


def test_a_session_that_is_not_there_is_a_negative_answer(daemon):
    for verb in ("show", "stop"):
        result = daemon.am("session", verb, "no-such-session")
        assert result.status == 1, result
        assert b"no-such-session" in result.err


def test_stop_ends_children_that_left_and_are_deaf_within_5_seconds(daemon, work, python):
    with daemon.running(*python(DEAF), cwd=work) as (process, name):
        pids = pids_of(work)
        cgroup = daemon.cgroup(daemon.session(name))
        assert cgroup.is_dir()
        assert daemon.am("session", "stop", name, timeout=10).status == 0
        wait_until(lambda: not [p for p in pids if alive(p)], 5, "all are gone")
        wait_until(lambda: not cgroup.exists(), 5, "the cgroup is gone")
        process.wait(10)
    assert daemon.session(name)["state"] == "ended"
    assert select(daemon.events(name), kind="session", change="stop_requested")


def test_survivors_of_the_agent_keep_the_session_open(daemon, work):
    result = daemon.run("sh", "-c", "setsid sleep 60 >/dev/null 2>&1 & echo $!", cwd=work)
    survivor = int(result.out)
    try:
        shown = daemon.session(result.name)
        assert shown["state"] == "running" and shown["processes"] == 1
        cgroup = daemon.cgroup(shown)
    finally:
        os.kill(survivor, 9)
    wait_until(lambda: daemon.session(result.name)["state"] == "ended", 5, "it ends with its last process")
    wait_until(lambda: not cgroup.exists(), 5, "the cgroup is gone")


def test_a_signal_to_run_ends_the_session(daemon, work, python):
    with daemon.running(*python(DEAF), cwd=work) as (process, name):
        pids = pids_of(work)
        process.terminate()
        process.wait(10)
        wait_until(lambda: not [p for p in pids if alive(p)], 5, "all are gone")


def test_stop_all_ends_every_session(own_daemon, work):
    with own_daemon.running("sleep", "60", cwd=work) as (a, _), own_daemon.running("sleep", "60", cwd=work) as (b, _):
        assert own_daemon.am("session", "stop", "--all").status == 0
        a.wait(10)
        b.wait(10)
    wait_until(lambda: own_daemon.status()["sessions"] == 0, 10, "none runs")


def test_two_sessions_do_not_mix(daemon, work):
    first = daemon.run("touch", "first", cwd=work)
    second = daemon.run("touch", "second", cwd=work)
    for result, mine, other in ((first, "first", "second"), (second, "second", "first")):
        paths = [r.get("path") for r in daemon.events(result.name)]
        assert str(work / mine) in paths and str(work / other) not in paths


def test_exec_replaces_the_command_line(daemon, work):
    words = daemon.run_words("sh", "-c", "echo $PPID", options=("--exec",))
    result = call(["sh", "-c", '"$@" & echo $$; wait', "sh", *words], cwd=work)
    shell, parent = result.out.split()
    assert shell == parent


def test_session_start_is_run_under_another_name(daemon, work):
    name = daemon.new_name()
    result = daemon.am("session", "start", "--name", name, "--", "sh", "-c", "exit 9", uid=61001, cwd=work)
    assert result.status == 9, result
    assert daemon.session(name)["command"] == ["sh", "-c", "exit 9"]


def test_sub_cgroups_that_the_agent_makes_go_with_the_session(daemon, work, python):
    result = daemon.run(*python("""
import os
path = open("/proc/self/cgroup").read().split("0::")[1].split("\\n")[0]
root = next(l.split()[4] for l in open("/proc/self/mountinfo") if " - cgroup2 " in l)
try: os.makedirs(root + path + "/a/b")
except OSError as e: print("refused", e.errno)
"""), cwd=work)
    assert result.status == 0, result
    shown = wait_until(lambda: (s := daemon.session(result.name))["state"] == "ended" and s, 10, "it has ended")
    wait_until(lambda: not daemon.cgroup(shown).exists(), 5, "the cgroup is gone")
