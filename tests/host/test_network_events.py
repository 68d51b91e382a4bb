"""Connections, binds, listens, datagrams and unix sockets: every attempt, and how it ended."""
import os
import socket
import threading

import pytest

from harness import brief, select, wait_until


def ipv6():
    try:
        with socket.socket(socket.AF_INET6) as s:
            s.bind(("::1", 0))
        return True
    except OSError:
        return False


needs_ipv6 = pytest.mark.skipif(not ipv6(), reason="no IPv6 on this machine")


@pytest.fixture
def server():
    """server(ADDRESS): a TCP listener outside of every session; its port."""
    listeners = []

    def listen(address):
        listener = socket.create_server((address, 0), family=socket.AF_INET6 if ":" in address else socket.AF_INET)
        listeners.append(listener)

        def serve():
            while True:
                try:
                    listener.accept()[0].close()
                except OSError:
                    return

        threading.Thread(target=serve, daemon=True).start()
        return listener.getsockname()[1]

    yield listen
    for listener in listeners:
        listener.close()


def closed_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def connects(rows, address, port):
    return [r for r in select(rows, kind="connect") if (r["address"], r["port"]) == (address, port)]


@pytest.mark.parametrize("address", ["127.0.0.1", pytest.param("::1", marks=needs_ipv6)])
def test_a_tcp_connection_that_is_taken_is_ok(daemon, work, python, server, address):
    port = server(address)
    rows = daemon.recorded(*python(
        "import socket, sys\nsocket.create_connection((sys.argv[1], int(sys.argv[2])))", address, port), cwd=work)
    found = connects(rows, address, port)
    assert found and found[-1]["result"] == "ok", brief(rows)
    assert found[-1]["protocol"] == "tcp" and found[-1]["source"] == "network"
    assert sum(r["count"] for r in found if r["result"] == "ok") == 1


def test_a_refused_connection_says_econnrefused(daemon, work, python):
    port = closed_port()
    rows = daemon.recorded(*python("""
import socket, sys
try: socket.create_connection(("127.0.0.1", int(sys.argv[1])))
except ConnectionRefusedError: pass
else: raise SystemExit(1)
""", port), cwd=work)
    found = connects(rows, "127.0.0.1", port)
    assert found and (found[-1]["result"], found[-1]["error"]) == ("failed", "ECONNREFUSED"), brief(rows)


def test_a_nonblocking_connection_gets_its_outcome(daemon, work, python, server):
    port = server("127.0.0.1")
    rows = daemon.recorded(*python("""
import select, socket, sys
s = socket.socket(); s.setblocking(False)
s.connect_ex(("127.0.0.1", int(sys.argv[1])))
select.select([], [s], [], 10)
assert s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
""", port), cwd=work)
    assert connects(rows, "127.0.0.1", port)[-1]["result"] == "ok", brief(rows)


@needs_ipv6
def test_a_mapped_address_is_shown_as_ipv4(daemon, work, python, server):
    port = server("127.0.0.1")
    rows = daemon.recorded(*python(
        'import socket, sys\nsocket.socket(socket.AF_INET6).connect(("::ffff:127.0.0.1", int(sys.argv[1])))', port), cwd=work)
    assert connects(rows, "127.0.0.1", port), brief(rows)


@pytest.mark.parametrize("address, family", [("127.0.0.1", "AF_INET"),
                                             pytest.param("::1", "AF_INET6", marks=needs_ipv6)])
def test_a_datagram_without_connect_is_a_send(daemon, work, python, address, family):
    rows = daemon.recorded(*python(
        "import socket, sys\nsocket.socket(getattr(socket, sys.argv[2]), socket.SOCK_DGRAM).sendto(b'x', (sys.argv[1], 9))",
        address, family), cwd=work)
    assert [r for r in select(rows, kind="send", address=address, port=9, protocol="udp")], brief(rows)


def test_datagrams_are_folded_with_an_exact_count(daemon, work, python):
    rows = daemon.recorded(*python("""
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for _ in range(500): s.sendto(b"x", ("127.0.0.1", 9))
"""), cwd=work)
    sends = select(rows, kind="send", address="127.0.0.1", port=9)
    assert sum(r["count"] for r in sends) == 500 and len(sends) < 100


@pytest.mark.parametrize("address", ["127.0.0.1", pytest.param("::1", marks=needs_ipv6)])
def test_a_server_in_the_session_shows_bind_and_listen(daemon, work, python, address):
    rows = daemon.recorded(*python("""
import socket, sys
family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
s = socket.socket(family); s.bind((sys.argv[1], 0)); s.listen(); print(s.getsockname()[1])
c = socket.create_connection(s.getsockname()[:2]); s.accept()
""", address), cwd=work)
    assert select(rows, kind="bind", address=address), brief(rows)
    listens = select(rows, kind="listen", address=address)
    assert listens, brief(rows)
    port = listens[0]["port"]
    assert port != 0 and connects(rows, address, port)


def test_a_unix_socket_is_recorded_by_its_path(daemon, work, python):
    path = work / "s"
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(str(path))
        path.chmod(0o777)
        s.listen()
        rows = daemon.recorded(*python('import socket\nsocket.socket(socket.AF_UNIX).connect("s")'), cwd=work)
    (row,) = [r for r in select(rows, kind="unix_connect") if r["path"] == str(path)]
    assert (row["abstract"], row["datagram"]) == (False, False)


def test_an_abstract_unix_socket_is_recorded_with_an_at_sign(daemon, work, python):
    name = f"agentmon-e2e-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as s:
        s.bind("\0" + name)
        s.listen()
        rows = daemon.recorded(*python(
            'import socket, sys\nsocket.socket(socket.AF_UNIX).connect("\\0" + sys.argv[1])', name), cwd=work,
                               options=("--policy", "observe"))  # others keep the session to its own
    (row,) = [r for r in select(rows, kind="unix_connect") if r["path"] == "@" + name]
    assert row["abstract"] is True


def test_a_unix_datagram_to_a_name_is_recorded(daemon, work, python):
    path = work / "d"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
        s.bind(str(path))
        path.chmod(0o777)
        rows = daemon.recorded(*python(
            'import socket, sys\nsocket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b"x", sys.argv[1])', path), cwd=work)
    (row,) = [r for r in select(rows, kind="unix_send") if r["path"] == str(path)]
    assert row["datagram"] is True


def test_sockets_outside_are_not_recorded(daemon, work, server):
    port = server("127.0.0.1")
    with daemon.running("sleep", "30", cwd=work) as (_, name):
        socket.create_connection(("127.0.0.1", port)).close()
        daemon.am("session", "stop", name)
        rows = daemon.events(name)
    assert not connects(rows, "127.0.0.1", port)


def test_a_thousand_connections_are_all_counted(daemon, work, python, server):
    port = server("127.0.0.1")
    rows = daemon.recorded(*python("""
import socket, sys
for _ in range(1000): socket.create_connection(("127.0.0.1", int(sys.argv[1]))).close()
""", port), cwd=work, timeout=120)
    wait_until(lambda: sum(r["count"] for r in connects(rows, "127.0.0.1", port) if r["result"] == "ok") == 1000, 1,
               brief(rows))
