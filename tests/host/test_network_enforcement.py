"""What a policy denies on the network, as programs see it and as it is stored. Each act is tried without the rule, too."""
import contextlib
import pathlib
import signal
import socket
import threading

import pytest

from harness import UID, one, select, wait_until

BASE = "defaults: {command: allow, file_read: allow, file_write: allow, network: %s, unix_socket: allow, signal: allow}\n"
ONLY_TWO = "network_rules: [{name: only-two, cidrs: [127.0.0.2], decision: allow}]\n"
NOT_THREE = "network_rules: [{name: not-three, cidrs: [127.0.0.3], decision: deny, message: 'not {{.RemoteAddr}}'}]\n"
PINS = pathlib.Path("/sys/fs/bpf/agentmon")

# Prints "done", or the errno's name.
TRY = """
import errno, os, socket, struct, sys
address, port = sys.argv[1], int(sys.argv[2])
def new(kind=socket.SOCK_STREAM, protocol=0):
    s = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, kind, protocol)
    s.settimeout(5)
    return s
try:
    {act}
    print("done")
except OSError as e:
    print(errno.errorcode[e.errno])
"""

# name: (what is done, kind of the row)
ACTS = {
    "connect": ("new().connect((address, port))", "connect"),
    "connect_ex of a non-blocking socket": (
        "s = new(); s.setblocking(False); e = s.connect_ex((address, port))\n"
        "    if e not in (0, errno.EINPROGRESS): raise OSError(e, '')", "connect"),
    "datagram": ("new(socket.SOCK_DGRAM).sendto(b'x', (address, port))", "send"),
    "connected datagrams": ("new(socket.SOCK_DGRAM).connect((address, port))", "connect"),
    "fast open": ("s = new(); s.settimeout(None); s.sendto(b'x', socket.MSG_FASTOPEN, (address, port))", "connect"),
    "a grandchild that was left alone": (
        "p = os.pipe()\n    if os.fork() == 0:\n        if os.fork() == 0:\n            os.setsid(); os.write(p[1], str(new().connect_ex((address, port))).encode())\n"
        "        os._exit(0)\n    e = int(os.read(p[0], 9))\n    if e: raise OSError(e, '')", "connect"),
}


def policy(work, rules, default="allow", name="p.yaml", extra=""):
    (work / name).write_text(f"version: 1\nname: p\nposture: enforce\n{extra}{BASE % default}{rules}")
    return ("--policy", f"./{name}")


def serve(listener):
    with contextlib.suppress(OSError):
        while True:
            listener.accept()[0].close()


@pytest.fixture
def server():
    """server(ADDRESS...): TCP and UDP on one port of each address, outside of every session; the port."""
    with contextlib.ExitStack() as sockets:
        def listen(*addresses):
            port = 0
            for address in addresses:
                family = socket.AF_INET6 if ":" in address else socket.AF_INET
                tcp = sockets.enter_context(socket.create_server((address, port), family=family))
                port = tcp.getsockname()[1]
                udp = sockets.enter_context(socket.socket(family, socket.SOCK_DGRAM))
                udp.bind((address, port))
                threading.Thread(target=serve, args=(tcp,), daemon=True).start()
            return port

        yield listen


def control(session, name):
    return one([{**c, "control": c.get("control")} for c in session["controls"]], control=name)


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("address", ["127.0.0.3", "::ffff:127.0.0.3"])
def test_a_denied_destination_is_not_reached(daemon, work, python, server, act, address):
    code, kind = ACTS[act]
    port = server("127.0.0.2", "127.0.0.3")
    script = TRY.format(act=code)
    stopped = daemon.run(*python(script, address, port), cwd=work, options=policy(work, NOT_THREE))
    assert stopped.out.decode().split() == ["EPERM"], stopped
    row = one(select(daemon.events(stopped.name), enforced=True), kind=kind)
    assert (row["rule"], row["mechanism"], row["errno_name"]) == ("not-three", "cgroup_bpf", "EPERM"), row
    assert (row["address"], row["port"], row["verdict"]) == ("127.0.0.3", port, "deny"), row
    assert row["message"] == "not 127.0.0.3", row
    other = address.replace("127.0.0.3", "127.0.0.2")
    assert daemon.run(*python(script, other, port), cwd=work, options=policy(work, NOT_THREE)).out == b"done\n"
    free = daemon.run(*python(script, address, port), cwd=work, options=("--policy", "observe"))
    assert free.out == b"done\n", free  # the control
    assert not select(daemon.events(free.name), enforced=True)


@pytest.mark.parametrize("address", ["127.0.0.3", "127.3", "2130706435", "0.0.0.0", "::1", "::", "::ffff:7f00:3"])
def test_what_is_not_allowed_is_denied_in_every_spelling(daemon, work, python, server, address):
    port = server("127.0.0.1", "127.0.0.2", "127.0.0.3", "::1")
    script = TRY.format(act=ACTS["connect"][0])
    stopped = daemon.run(*python(script, address, port), cwd=work, options=policy(work, ONLY_TWO, "deny"))
    assert stopped.out == b"EPERM\n", stopped
    row = one(select(daemon.events(stopped.name), enforced=True), kind="connect")
    assert (row["rule"], row["mechanism"]) == ("default for network", "cgroup_bpf"), row
    assert daemon.run(*python(script, "127.0.0.2", port), cwd=work, options=policy(work, ONLY_TWO, "deny")).out == b"done\n"
    assert daemon.run(*python(script, address, port), cwd=work, options=("--policy", "observe")).out == b"done\n"


# A routing header of segments: the packet goes to the first station, the judged destination is the last one.
ROUTED = """
s = new(socket.SOCK_DGRAM)
    route = struct.pack('BBBBBBH', 0, 4, 4, 1, 1, 0, 0) + 2 * socket.inet_pton(socket.AF_INET6, '::1')
    s.setsockopt(socket.IPPROTO_IPV6, 57, route)
    s.sendto(b'x', (address, port))
""".strip()


def test_a_packet_with_a_route_of_its_own_is_not_sent(daemon, work, python, server):
    port = server("::1")
    words = python(TRY.replace("{act}", ROUTED), "::1", port)
    for rules, expected in ((ONLY_TWO.replace("127.0.0.2", "'::1'"), "EPERM"), ("", "done")):
        result = daemon.run(*words, cwd=work, options=policy(work, rules, default="deny" if rules else "allow"))
        assert result.out.decode().split() == [expected], (rules, result)
        rows = select(daemon.events(result.name), kind="send", enforced=True)
        if not rules:
            assert rows == []
            continue
        row = one(rows)
        assert (row["rule"], row["mechanism"], row["errno_name"]) == ("packets with a way of their own", "cgroup_bpf", "EPERM")
    plain = python(TRY.replace("{act}", "new(socket.SOCK_DGRAM).sendto(b'x', (address, port))"), "::1", port)
    allowed = daemon.run(*plain, cwd=work, options=policy(work, ONLY_TWO.replace("127.0.0.2", "'::1'"), default="deny"))
    assert allowed.out == b"done\n", allowed


def test_ports_and_protocols_are_told_apart(daemon, work, python, server):
    port = server("127.0.0.2")
    rules = f"network_rules: [{{name: some, cidrs: [127.0.0.2], ports: ['{port}-{port}'], protocol: udp, decision: allow}}]\n"
    tcp, udp = (python(TRY.format(act=ACTS[act][0]), "127.0.0.2", port) for act in ("connect", "datagram"))
    other = python(TRY.format(act=ACTS["datagram"][0]), "127.0.0.2", port - 1)
    answers = [daemon.run(*words, cwd=work, options=policy(work, rules, "deny")).out for words in (tcp, udp, other)]
    assert answers == [b"EPERM\n", b"done\n", b"EPERM\n"]


def test_a_deny_of_any_layer_wins_and_layers_that_record_stop_nothing(own_daemon, work, python, server):
    port = server("127.0.0.3")
    words = python(TRY.format(act=ACTS["connect"][0]), "127.0.0.3", port)
    allow = "network_rules: [{name: all, cidrs: [0.0.0.0/0], decision: allow}]\n"
    policy(work, NOT_THREE, name="more.yaml")
    options = (*policy(work, allow), "--policy", "./more.yaml")
    assert own_daemon.run(*words, cwd=work, options=options).out == b"EPERM\n"
    (own_daemon.floor / "10-company.yaml").write_text(f"version: 1\nname: company\nposture: enforce\n{NOT_THREE}")
    assert own_daemon.am("policy", "reload").status == 0
    floored = own_daemon.run(*words, cwd=work, options=policy(work, allow))
    assert floored.out == b"EPERM\n", floored
    assert one(select(own_daemon.events(floored.name), enforced=True), kind="connect")["layer"] == "floor: company"
    (own_daemon.floor / "10-company.yaml").unlink()
    assert own_daemon.am("policy", "reload").status == 0
    assert own_daemon.run(*words, cwd=work, options=policy(work, allow)).out == b"done\n"
    (work / "watch.yaml").write_text(f"version: 1\nname: w\nposture: monitor\n{NOT_THREE}")
    watched = own_daemon.run(*words, cwd=work, options=(*policy(work, allow), "--policy", "./watch.yaml"))
    assert watched.out == b"done\n", watched
    row = one(own_daemon.events(watched.name), kind="connect")
    assert (row["verdict"], row["enforced"], row["rule"]) == ("deny", False, "not-three"), row


def test_options_of_the_command_line_are_one_more_layer(daemon, work, python, server):
    port = server("127.0.0.2", "127.0.0.3")
    two, three = (python(TRY.format(act=ACTS["connect"][0]), address, port) for address in ("127.0.0.2", "127.0.0.3"))
    cases = [(("--deny-net", "127.0.0.3"), b"done\n", b"EPERM\n"), (("--allow-net", f"127.0.0.2:{port}"), b"done\n", b"EPERM\n"),
             (("--deny-all",), b"EPERM\n", b"EPERM\n"), ((), b"done\n", b"done\n")]
    for options, of_two, of_three in cases:
        assert daemon.run(*two, cwd=work, options=(*policy(work, ""), *options)).out == of_two, options
        assert daemon.run(*three, cwd=work, options=(*policy(work, ""), *options)).out == of_three, options
    denied = daemon.run(*three, cwd=work, options=(*policy(work, ""), "--deny-net", "127.0.0.3"))
    assert one(select(daemon.events(denied.name), enforced=True), kind="connect")["rule"] == "--deny-net 127.0.0.3"
    # Over a policy that allows less, an option opens nothing.
    still = daemon.run(*three, cwd=work, options=(*policy(work, ONLY_TWO, "deny"), "--allow-net", "127.0.0.3"))
    assert still.out == b"EPERM\n", still
    wrong = daemon.run("true", cwd=work, options=("--deny-net", "10.0.0.1/8"))
    assert wrong.status == 125 and b"--deny-net 10.0.0.1/8" in wrong.err, wrong


def test_a_question_that_nobody_can_answer_is_a_denial(daemon, work, python, server):
    port = server("127.0.0.3")
    words = python(TRY.format(act=ACTS["connect"][0]), "127.0.0.3", port)
    asked = daemon.run(*words, cwd=work, options=policy(work, NOT_THREE.replace("deny", "ask")))
    assert asked.out == b"EPERM\n", asked
    row = one(select(daemon.events(asked.name), enforced=True), kind="connect")
    assert (row["verdict"], row["rule"]) == ("ask", "not-three"), row


def test_servers_of_the_session_and_unix_sockets_go_on(daemon, work, python):
    code = """
import os, socket
s = socket.create_server(("127.0.0.2", 0)); c = socket.create_connection(s.getsockname()); s.accept()
socket.create_server(("0.0.0.0", 0)).close()
u = socket.socket(socket.AF_UNIX); u.bind("sock"); u.listen(); v = socket.socket(socket.AF_UNIX); v.connect("sock"); v.sendmsg([b"x"])
a, b = socket.socketpair(); a.sendmsg([b"x"])
print("done")
"""
    ran = daemon.run(*python(code), cwd=work, options=policy(work, ONLY_TWO, "deny"))
    assert ran.out == b"done\n", ran


def test_the_control_is_proven_and_rules_are_listed_as_they_are(daemon, work):
    rules = NOT_THREE.replace("]\n", ", {name: by-name, domains: ['*.example.com'], decision: deny}]\n")
    extra = "enforcement: best_effort\n"
    with daemon.running("sleep", "60", cwd=work, options=policy(work, rules, extra=extra)) as (_, name):
        session = daemon.session(name)
        tried = control(session, "network")
        assert (tried["active"], tried["mechanism"]) == (True, "cgroup_bpf"), tried
        listed = {r["rule"]: r for r in session["policy"]["rules"]}
        assert (listed["not-three"]["enforced"], listed["not-three"]["mechanism"]) == ("kernel", "cgroup_bpf"), listed
        assert (listed["by-name"]["enforced"], listed["by-name"]["mechanism"]) == ("kernel", "cgroup_bpf, resolver"), listed
    rows = daemon.events(name)
    assert not select(rows, enforced=True), rows  # what the shim tried is not the agent's
    assert int(session.get("denials", 0)) == 0


# Goes on trying; says each change of the answer.
TRIES = """
import errno, socket, sys, time
address, port = sys.argv[1], int(sys.argv[2])
last = None
# Opened once: opens are judged too, and denied without a daemon.
answers, count = open(sys.argv[3], "ab", 0), open(sys.argv[3] + ".count", "ab", 0)
while True:
    with socket.socket() as s:
        s.settimeout(5)
        try:
            s.connect((address, port)); now = "done"
        except OSError as e:
            now = errno.errorcode.get(e.errno, str(e))
    if now != last:
        answers.write(now.encode() + b"\\n")
    last = now
    count.write(b".")
    time.sleep(0.002)
"""


class Tries:
    def __init__(self, work):
        self.path = work / "answers"

    def answers(self):
        return self.path.read_text().split() if self.path.exists() else []

    def count(self):
        count = pathlib.Path(f"{self.path}.count")
        return count.stat().st_size if count.exists() else 0

    def more(self, tries=20):
        enough = self.count() + tries
        wait_until(lambda: self.count() >= enough, 15, "more tries")


def test_a_running_session_follows_its_policy(own_daemon, work, python, server):
    port = server("127.0.0.3")
    tries = Tries(work)
    options = policy(work, "")
    policy(work, NOT_THREE, name="tight.yaml")
    with own_daemon.running(*python(TRIES, "127.0.0.3", port, tries.path), cwd=work, options=options) as (_, name):
        tries.more()
        assert tries.answers() == ["done"]
        set_policy = ("session", "set-policy", name, "--policy")
        assert own_daemon.am(*set_policy, str(work / "tight.yaml"), uid=UID).status == 0
        wait_until(lambda: tries.answers() == ["done", "EPERM"], what="the rule holds")
        tries.more()
        assert own_daemon.am(*set_policy, str(work / "p.yaml"), uid=UID).status == 0
        wait_until(lambda: tries.answers() == ["done", "EPERM", "done"], what="the rule is gone")
        (own_daemon.floor / "10.yaml").write_text(f"version: 1\nname: company\nposture: enforce\n{NOT_THREE}")
        assert own_daemon.am("policy", "reload").status == 0
        wait_until(lambda: len(tries.answers()) == 4, what="the floor holds")
        rows = own_daemon.timeline(session=name)
        assert {r["rule"] for r in select(rows, kind="connect", enforced=True)} == {"not-three"}


@pytest.mark.parametrize("sig", [signal.SIGKILL, signal.SIGTERM])
def test_rules_hold_without_a_daemon_and_under_the_next_one(own_daemon, work, python, server, sig):
    port = server("127.0.0.2", "127.0.0.3")
    denied, allowed = Tries(work), Tries(work)
    allowed.path = work / "allowed"
    words = ["sh", "-c", '"$@" 127.0.0.2 "$0" allowed & exec "$@" 127.0.0.3 "$0" answers', str(port)]
    script = python(TRIES)
    with own_daemon.running(*words, *script, cwd=work, options=policy(work, NOT_THREE)) as (_, name):
        denied.more(), allowed.more()
        assert list(PINS.iterdir())
        own_daemon.stop(sig)
        denied.more(60), allowed.more(60)
        own_daemon.start()
        denied.more(), allowed.more()
        assert (denied.answers(), allowed.answers()) == (["EPERM"], ["done"])
        assert own_daemon.am("session", "set-policy", name, "--policy", "observe", uid=UID).status == 0
        wait_until(lambda: denied.answers() == ["EPERM", "done"], what="nothing of the old daemon is left")
        assert control(own_daemon.session(name), "network")["active"]
    own_daemon.am("session", "stop", "--all")
    wait_until(lambda: own_daemon.status()["sessions"] == 0)
    assert not own_daemon_pins(own_daemon)


def test_a_switch_gives_no_answer_that_neither_policy_gives(own_daemon, work, python, server):
    port = server("127.0.0.3")
    tries = Tries(work)
    policy(work, NOT_THREE, name="tight.yaml")
    with own_daemon.running(*python(TRIES, "127.0.0.3", port, tries.path), cwd=work, options=policy(work, "")) as (_, name):
        tries.more()
        for at in range(1, 41):
            rules = work / ("tight.yaml" if at % 2 else "p.yaml")
            assert own_daemon.am("session", "set-policy", name, "--policy", str(rules), uid=UID).status == 0
            tries.more(3)
        assert set(tries.answers()) == {"done", "EPERM"} and len(tries.answers()) == 41, tries.answers()
        rows = own_daemon.timeline(session=name)
        assert {r["mechanism"] for r in select(rows, kind="connect", enforced=True)} == {"cgroup_bpf"}


def own_daemon_pins(daemon):
    """Pins whose life is that of this daemon."""
    return [p for p in PINS.glob("*/*") if p.name.startswith(f"{daemon.pid}-")]


def test_nothing_stays_pinned_after_the_last_session(own_daemon, work):
    with own_daemon.running("sleep", "60", cwd=work, options=policy(work, NOT_THREE)):
        assert own_daemon_pins(own_daemon)
    wait_until(lambda: own_daemon.status()["sessions"] == 0)
    assert not own_daemon_pins(own_daemon)


def test_a_session_starts_not_where_its_rules_would_not_fit(daemon, work):
    rules = "network_rules:\n" + "".join(f"  - {{ports: [{p}], protocol: udp, decision: deny}}\n" for p in range(1, 5001))
    refused = daemon.run("true", cwd=work, options=policy(work, rules))
    assert refused.status == 125 and b"cannot enforce" in refused.err, refused
    ran = daemon.run("true", cwd=work, options=policy(work, rules, extra="enforcement: best_effort\n"))
    assert ran.status == 0, ran


def test_outside_of_sessions_nothing_is_denied(daemon, work, server):
    port = server("127.0.0.3")
    with daemon.running("sleep", "60", cwd=work, options=policy(work, NOT_THREE)):
        with socket.create_connection(("127.0.0.3", port), 5):
            pass
