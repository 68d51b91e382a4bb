"""Behind the programs on the network stands nftables. Each act is tried without the table, or without the rule, too.

What the programs do not see: a socket that was made in a session and is used by a process outside of it, and a
connected socket when the policy changes.
"""
import array
import contextlib
import ctypes
import json
import os
import signal
import socket
import subprocess

import pytest

import harness
from harness import cgroup2_mount, one, select, wait_until

BASE = "version: 1\nname: p\nposture: enforce\ndefaults: {command: allow, file_read: allow, file_write: allow, network: %s, unix_socket: allow, signal: allow}\n"
NOT_THREE = BASE % "allow" + "network_rules: [{name: not-three, cidrs: [127.0.0.3], decision: deny}]\n"
ONLY_TWO = BASE % "deny" + "network_rules: [{name: only-two, cidrs: [127.0.0.2], decision: allow}]\n"
FILES_ONLY = BASE % "allow" + "file_rules: [{name: one, paths: [/etc/no-such-file], operations: ['*'], decision: deny}]\n"


class Nft:
    """libnftables, as root, in the host's network namespace."""

    def __init__(self):
        self.lib = ctypes.CDLL("libnftables.so.1")
        self.lib.nft_ctx_new.restype = ctypes.c_void_p
        self.lib.nft_ctx_get_output_buffer.restype = ctypes.c_char_p
        self.context = ctypes.c_void_p(self.lib.nft_ctx_new(0))
        self.lib.nft_ctx_buffer_output(self.context)
        self.lib.nft_ctx_buffer_error(self.context)

    def run(self, command):
        """What it prints; None when it fails."""
        result = self.lib.nft_run_cmd_from_buffer(self.context, command.encode())
        text = self.lib.nft_ctx_get_output_buffer(self.context).decode()
        self.lib.nft_ctx_get_error_buffer(self.context)
        return text if result == 0 else None

    def tables(self):
        return [line.split()[-1] for line in self.run("list tables inet").splitlines() if line.startswith("table ")]


@pytest.fixture
def nft():
    return Nft()


def table_of(daemon, nft):
    """The name of the daemon's own table; None when it has none."""
    # A session's directory lies in agentmon-INSTANCE, and so is the table called.
    pid = daemon.pid
    names = [t for t in nft.tables() if t in instance_names(daemon)]
    assert pid and len(names) <= 1, names
    return names[0] if names else None


def instance_names(daemon):
    hashed = 14695981039346656037
    for byte in str(daemon.runtime).encode():
        hashed = (hashed ^ byte) * 1099511628211 % (1 << 64)
    return {f"agentmon-{hashed:016x}"}


def policy(work, text, name="p.yaml"):
    (work / name).write_text(text)
    return ("--policy", f"./{name}")


@pytest.fixture
def server():
    """server(ADDRESS): a TCP listener and a UDP socket on one port of it, outside of every session."""
    with contextlib.ExitStack() as sockets:
        def listen(address):
            tcp = sockets.enter_context(socket.create_server((address, 0)))
            udp = sockets.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            udp.bind((address, tcp.getsockname()[1]))
            tcp.settimeout(10)
            udp.settimeout(10)
            return tcp, udp, tcp.getsockname()[1]

        yield listen


GIVE = """
import array, socket, sys, time
c = socket.socket(socket.AF_UNIX)
c.connect(sys.argv[1])
made = [socket.socket(socket.AF_INET, socket.SOCK_STREAM), socket.socket(socket.AF_INET, socket.SOCK_DGRAM), socket.socket(socket.AF_INET, socket.SOCK_DGRAM)]
c.sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [s.fileno() for s in made]))])
c.recv(1)
"""


@contextlib.contextmanager
def given(daemon, work, python, options):
    """Sockets that were made in a session, in our hands: (TCP, UDP, UDP, the session's name)."""
    path = str(work / "give")
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        os.chmod(path, 0o666)
        listener.listen()
        listener.settimeout(20)
        with daemon.running(*python(GIVE, path), cwd=work, options=options) as (_, name):
            with listener.accept()[0] as connection:
                _, rights, _, _ = connection.recvmsg(1, socket.CMSG_SPACE(64))
                numbers = array.array("i")
                numbers.frombytes(rights[0][2])
                with contextlib.ExitStack() as stack:
                    sockets = [stack.enter_context(socket.socket(fileno=n)) for n in numbers]
                    for s in sockets:
                        s.settimeout(10)
                    yield *sockets, name


def control(daemon, name):
    return one([{**c, "control": c.get("control")} for c in daemon.session(name)["controls"]], control="network_backstop")


def ready(daemon, name):
    wait_until(lambda: control(daemon, name)["active"], 10, "the backstop is proven")


def error_of(act):
    try:
        act()
        return None
    except OSError as error:
        return error.errno


def test_a_socket_of_the_session_is_stopped_in_other_hands(daemon, work, python, server, nft):
    import errno
    tcp, udp, port = server("127.0.0.3")
    with given(daemon, work, python, policy(work, NOT_THREE)) as (stream, datagram, other, name):
        state = control(daemon, name)
        assert (state["mechanism"], state["active"]) == ("nft", True), state
        assert error_of(lambda: datagram.sendto(b"x", ("127.0.0.3", port))) == errno.EPERM
        assert error_of(lambda: stream.connect(("127.0.0.3", port))) == errno.ECONNREFUSED
        assert error_of(lambda: other.sendto(b"free", ("127.0.0.2", port))) is None
        rows = daemon.events(name, lambda r: len(select(r, source="nflog")) >= 2)
        sent, connected = one(rows, source="nflog", kind="send"), one(rows, source="nflog", kind="connect")
        for row, error in ((sent, "EPERM"), (connected, "ECONNREFUSED")):
            assert (row["rule"], row["mechanism"], row["errno_name"], row["enforced"]) == ("not-three", "nft", error, True), row
            assert (row["address"], row["port"], row["verdict"]) == ("127.0.0.3", port, "deny"), row
        # The controls: without the table both get through, and so they do under a policy that allows it.
        assert nft.run(f"delete table inet {table_of(daemon, nft)}") is not None
        datagram.sendto(b"through", ("127.0.0.3", port))
        assert udp.recv(9) == b"through"
    with given(daemon, work, python, policy(work, FILES_ONLY)) as (stream, datagram, _, name):
        assert not select([{**c, "control": c.get("control")} for c in daemon.session(name)["controls"]], control="network_backstop")
        datagram.sendto(b"free", ("127.0.0.3", port))
        assert udp.recv(9) == b"free"
        stream.connect(("127.0.0.3", port))
        tcp.accept()[0].close()


CONNECTED = """
import errno, socket, sys, time
address, port, flag = sys.argv[1], int(sys.argv[2]), sys.argv[3]
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.connect((address, port))
print(s.send(b'first'), flush=True)
for line in sys.stdin:
    try:
        s.send(line.strip().encode())
        print('sent', flush=True)
    except OSError as e:
        print(errno.errorcode[e.errno], flush=True)
"""


def ask(process, word):
    process.stdin.write(word + b"\n")
    process.stdin.flush()
    return process.stdout.readline().strip()


def test_a_connected_socket_follows_a_new_policy(daemon, work, python, server, nft):
    _, udp, port = server("127.0.0.3")
    words = python(CONNECTED, "127.0.0.3", port, work / "flag")
    with daemon.running(*words, cwd=work, options=policy(work, FILES_ONLY), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as (process, name):
        assert process.stdout.readline().strip() == b"5"
        assert ask(process, b"before") == b"sent"
        assert [udp.recv(9), udp.recv(9)] == [b"first", b"before"]
        policy(work, NOT_THREE, "q.yaml")
        changed = daemon.am("session", "set-policy", name, "--policy", "./q.yaml", cwd=work)
        assert changed.status == 0, changed
        # The programs judge no send on a connected socket; the table follows in some milliseconds.
        wait_until(lambda: ask(process, b"after") == b"EPERM", 10, "the packet is stopped")
        row = daemon.events(name, lambda r: select(r, source="nflog"))
        row = select(row, source="nflog")[0]
        assert (row["kind"], row["rule"], row["mechanism"], row["protocol"]) == ("send", "not-three", "nft", "udp"), row
        # The control: back under the policy that allows it.
        changed = daemon.am("session", "set-policy", name, "--policy", "./p.yaml", cwd=work)
        assert changed.status == 0, changed
        wait_until(lambda: ask(process, b"again") == b"sent", 10, "the packet passes")


def test_a_flood_is_counted_and_not_told_in_full(daemon, work, python, server):
    _, _, port = server("127.0.0.3")
    with given(daemon, work, python, policy(work, NOT_THREE)) as (_, datagram, _, name):
        for _ in range(500):
            assert error_of(lambda: datagram.sendto(b"x", ("127.0.0.3", port))) is not None
        rows = daemon.events(name, lambda r: select(r, kind="loss", source="nflog") or select(r, kind="loss"))
        lost = sum(int(row["lost"]) for row in select(rows, kind="loss"))
        told = harness.total(rows, source="nflog", kind="send")
        assert 50 <= told < 400 and lost > 0, (told, lost)

        def all_known():
            rows = daemon.timeline(session=name)
            return harness.total(rows, source="nflog", kind="send") + sum(int(r["lost"]) for r in select(rows, kind="loss")) == 500

        wait_until(all_known, 10, "each packet was told or counted")


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGKILL])
def test_it_stays_without_a_daemon_and_goes_with_the_last_session(own_daemon, work, python, server, nft, sig):
    import errno
    _, udp, port = server("127.0.0.3")
    foreign = f"agentmon-foreign-{os.getpid()}"
    assert nft.run(f"add table inet {foreign}") is not None
    try:
        with given(own_daemon, work, python, policy(work, NOT_THREE)) as (_, datagram, _, name):
            table = table_of(own_daemon, nft)
            assert table
            own_daemon.stop(sig)
            assert error_of(lambda: datagram.sendto(b"x", ("127.0.0.3", port))) == errno.EPERM
            own_daemon.start()
            assert table_of(own_daemon, nft) == table
            assert error_of(lambda: datagram.sendto(b"x", ("127.0.0.3", port))) == errno.EPERM
            rows = own_daemon.events(name, lambda r: select(r, source="nflog"))
            assert select(rows, source="nflog")[-1]["rule"] == "not-three"
            # And it is this table that stopped it.
            assert nft.run(f"delete table inet {table}") is not None
            assert error_of(lambda: datagram.sendto(b"x", ("127.0.0.3", port))) is None
            # Root has it made anew.
            applied = own_daemon.am("debug", "network-apply", name)
            assert applied.status == 0, applied
            assert error_of(lambda: datagram.sendto(b"x", ("127.0.0.3", port))) == errno.EPERM
        wait_until(lambda: table_of(own_daemon, nft) is None, 10, "the table goes with the last session")
        assert foreign in nft.tables()
    finally:
        nft.run(f"delete table inet {foreign}")


def test_a_table_that_nobody_needs_is_removed_at_the_start(own_daemon, nft):
    left = next(iter(instance_names(own_daemon)))
    own_daemon.kill()
    assert nft.run(f"add table inet {left}") is not None
    own_daemon.start()
    wait_until(lambda: table_of(own_daemon, nft) is None, 10, "what an earlier daemon left is gone")


def test_outside_of_sessions_nothing_is_stopped(daemon, work, python, server):
    tcp, udp, port = server("127.0.0.3")
    with given(daemon, work, python, policy(work, NOT_THREE)) as (_, _, _, name):
        assert control(daemon, name)["active"]
        with socket.create_connection(("127.0.0.3", port), timeout=10), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
            tcp.accept()[0].close()
            other.sendto(b"free", ("127.0.0.3", port))
            assert udp.recv(9) == b"free"


SERVE = """
import socket, sys
s = socket.create_server(('127.0.0.2', 0))
print(s.getsockname()[1], flush=True)
c, _ = s.accept()
c.sendall(c.recv(100)[::-1])
c.recv(1)
"""


def test_a_server_of_the_session_answers_whoever_connects(daemon, work, python):
    with daemon.running(*python(SERVE), cwd=work, options=policy(work, ONLY_TWO), stdout=subprocess.PIPE) as (process, name):
        port = int(process.stdout.readline())
        assert control(daemon, name)["active"]
        with socket.create_connection(("127.0.0.2", port), timeout=10, source_address=("127.0.0.9", 0)) as client:
            client.sendall(b"abc")
            assert client.recv(9) == b"cba"


class Unprivileged(harness.Daemon):
    """A daemon that the kernel lets load programs, and that may not touch nftables."""

    def command(self):
        return ["setpriv", "--bounding-set", "-net_admin", "--inh-caps", "-net_admin", *super().command()]


def test_where_nftables_is_refused_the_programs_go_on_alone(bin_dir, work, python, server):
    _, _, port = server("127.0.0.3")
    daemon = Unprivileged(bin_dir).start()
    try:
        source = one(daemon.status()["sources"], source="nflog")
        assert not source["active"] and "not permitted" in source["why"], source
        script = "import errno, socket, sys\ntry:\n    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.3', int(sys.argv[1])))\nexcept OSError as e:\n    print(errno.errorcode[e.errno])\n"
        result = daemon.run(*python(script, port), cwd=work, options=policy(work, NOT_THREE))
        assert result.out == b"EPERM\n", result
        assert one(select(daemon.events(result.name), enforced=True), kind="send")["mechanism"] == "cgroup_bpf"
        state = control(daemon, result.name)
        assert not state["active"] and state["why"], state
    finally:
        daemon.close()


def test_the_plan_is_shown(daemon, work, python, nft):
    with given(daemon, work, python, policy(work, ONLY_TWO)) as (_, _, _, name):
        plan = daemon.am("debug", "network-plan", name, uid=harness.UID)
        assert plan.status == 0, plan
        lines = plan.out.decode().splitlines()
        assert any("socket cgroupv2 level" in line for line in lines), plan
        # What it shows is what nft takes: checked, not applied.
        assert any(daemon.session(name)["id"] in line and "goto" in line for line in lines), plan
        assert daemon.am("debug", "network-apply", name, uid=harness.UID).status == 1
    offline = daemon.am("debug", "network-plan", "--policy", "./p.yaml", cwd=work, uid=harness.UID)
    assert offline.status == 0 and b"add set inet" in offline.out, offline
    nothing = daemon.am("debug", "network-plan", "--policy", "observe", uid=harness.UID)
    assert nothing.status == 0 and nothing.out.startswith(b"#"), nothing
