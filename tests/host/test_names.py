"""Names: what a session's resolver answers, what its answers open, and what is stored of it.

The whole test runs in a network namespace of its own, where addresses of the documentation ranges lie on the loopback and a
server that we did not write (dnsmasq) answers. Each refusal is tried without the rule first."""
import contextlib
import os
import pathlib
import shutil
import socket
import subprocess
import threading

import pytest

from harness import Daemon, UID, brief, call, one, own_network, select, wait_until

SERVER = "127.0.0.53"          # dnsmasq; sessions ask 192.0.2.53, where nobody is
ADDRESSES = ["198.51.100.1", "198.51.100.2", "198.51.100.3", "203.0.113.9"]
ADDRESSES6 = ["2001:db8::1"]
DIG = ["dig", "+tries=1", "+time=5"]
PORT = 8443
GRACE = 15                     # seconds that an answer holds beyond its time to live

ZONE = """
port=53
listen-address=127.0.0.53
bind-interfaces
no-resolv
no-hosts
local-ttl=60
host-record=one.hosts.test,198.51.100.1,2001:db8::1
host-record=two.hosts.test,198.51.100.2
host-record=short.hosts.test,198.51.100.3,1
host-record=inner.hosts.test,127.0.0.1
host-record=other.test,203.0.113.9
cname=alias.hosts.test,one.hosts.test
txt-record=text.hosts.test,"v=1"
mx-host=hosts.test,two.hosts.test,10
srv-host=_s._tcp.hosts.test,two.hosts.test,443
"""

BASE = ("version: 1\nname: p\nposture: enforce\n"
        "defaults: {command: allow, file_read: allow, file_write: allow, network: deny, unix_socket: allow, signal: allow}\n")
ALLOW = (BASE + "network_rules:\n"
         "  - {name: no-two, domains: [two.hosts.test], decision: deny, message: 'two is closed'}\n"
         f"  - {{name: hosts, domains: ['**.hosts.test', hosts.test], ports: [{PORT}], decision: allow}}\n")
OPEN = BASE.replace("network: deny", "network: allow")

ASK = """
import socket, sys
try: print(sorted({a[4][0] for a in socket.getaddrinfo(sys.argv[1], None)}))
except socket.gaierror as e: print(e.errno == socket.EAI_NONAME and "no such name" or e)
"""
DIAL = f"""
import errno, socket, sys
PORT = {PORT}
address = sys.argv[1]
if address[0].isalpha(): address = socket.getaddrinfo(address, None, socket.AF_INET)[0][4][0]
try: print(socket.create_connection((address, {PORT}), 5).recv(9).decode())
except OSError as e: print(errno.errorcode[e.errno])
"""


@pytest.fixture(scope="module")
def network():
    with own_network([*ADDRESSES, *ADDRESSES6]):
        yield


@pytest.fixture(scope="module")
def servers(network):
    """dnsmasq, and who answers on every address."""
    folder = pathlib.Path("/run") / f"agentmon-dns-{os.getpid()}"
    folder.mkdir(mode=0o755)
    (folder / "conf").write_text(ZONE)
    process = subprocess.Popen(["dnsmasq", "--keep-in-foreground", f"--conf-file={folder}/conf", f"--pid-file={folder}/pid",
                                "--user=root"], stdin=subprocess.DEVNULL)
    listeners = []
    for address in [*ADDRESSES, *ADDRESSES6, "127.0.0.1"]:
        listener = socket.create_server((address, PORT), family=socket.AF_INET6 if ":" in address else socket.AF_INET)
        listeners.append(listener)

        def serve(listener=listener):
            with contextlib.suppress(OSError):
                while True:
                    connection = listener.accept()[0]
                    connection.sendall(b"reached")
                    connection.close()

        threading.Thread(target=serve, daemon=True).start()
    wait_until(lambda: call([*DIG, f"@{SERVER}", "+short", "one.hosts.test"]).out == b"198.51.100.1\n", what="dnsmasq answers")
    yield
    process.terminate()
    process.wait(10)
    for listener in listeners:
        listener.close()
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def named(servers, bin_dir):
    daemon = Daemon(bin_dir, config=f"log_level: debug\nresolver: {{servers: '{SERVER}:53'}}\n").start()
    yield daemon
    daemon.close()


@pytest.fixture
def session(named, work):
    """session(POLICY, PROGRAM, *ARGUMENTS): what it printed, and the rows of its session."""

    def run(policy, *command):
        (work / "p.yaml").write_text(policy)
        result = named.run(*command, options=("--policy", "./p.yaml"), cwd=work)
        assert result.status in (0, 9, 10), result  # dig's own
        return result.out.decode().strip(), named.events(result.name)

    return run


def asked(rows, name, **fields):
    return select(rows, kind="dns", name=name, **fields)


def test_a_name_that_no_rule_allows_is_not_there(session, python):
    said, rows = session(OPEN, *python(ASK, "other.test"))  # the control
    assert said == "['203.0.113.9']", brief(rows)
    assert asked(rows, "other.test", type="A", verdict="allow", answers=["203.0.113.9"])
    said, rows = session(ALLOW, *python(ASK, "other.test"))
    assert said == "no such name"
    for row in asked(rows, "other.test"):
        assert (row["verdict"], row["enforced"], row["mechanism"], row["rcode"]) == ("deny", True, "resolver", "NXDOMAIN"), row
        assert row["answers"] == [] and row["source"] == "resolver" and row["protocol"] == "udp"
    assert {r["type"] for r in asked(rows, "other.test")} == {"A", "AAAA"}


def test_an_allowed_name_opens_its_address_and_no_other(session, python):
    dial = DIAL + """
for other in sys.argv[2:]:
    try: print(socket.create_connection((other, PORT), 5).recv(9).decode())
    except OSError as e: print(errno.errorcode[e.errno])
"""
    said, rows = session(OPEN, *python(DIAL, "198.51.100.1"))
    assert said == "reached"
    said, rows = session(ALLOW, *python(DIAL, "198.51.100.1"))
    assert said == "EPERM"  # nobody has asked
    said, rows = session(ALLOW, *python(dial, "one.hosts.test", "198.51.100.1", "198.51.100.2", "203.0.113.9"))
    assert said.split() == ["reached", "reached", "EPERM", "EPERM"]
    good = select(rows, kind="connect", address="198.51.100.1", port=PORT)
    assert good and {r.get("name") for r in good} == {"one.hosts.test"} and {r["verdict"] for r in good} == {"allow"}, brief(rows)
    for address in ("198.51.100.2", "203.0.113.9"):
        bad = one(rows, kind="connect", address=address, port=PORT)
        assert (bad["verdict"], bad["enforced"], bad["errno_name"]) == ("deny", True, "EPERM") and "name" not in bad


def test_who_asks_is_known(session, python):
    _, rows = session(ALLOW, *python(ASK, "one.hosts.test"))
    row = asked(rows, "one.hosts.test", type="A")[0]
    assert os.path.basename(row["exe"]).startswith("python3") and row["pid"] == one(rows, kind="exec", pid=row["pid"])["pid"]
    assert row["uid"] == UID


def test_a_denied_name_says_which_rule(session):
    said, rows = session(ALLOW, *DIG, "@192.0.2.53", "two.hosts.test")
    assert "status: NXDOMAIN" in said and "EDE: 15 (Blocked): (agentmon: no-two: two is closed)" in said, said
    row = one(rows, kind="dns", name="two.hosts.test")
    assert (row["rule"], row["message"], row["verdict"], row["server"]) == ("no-two", "two is closed", "deny", "192.0.2.53")
    said, _ = session(ALLOW.replace("decision: deny, message: 'two is closed'", "decision: allow"), *DIG, "@192.0.2.53", "two.hosts.test")
    assert "status: NOERROR" in said and "198.51.100.2" in said, said


@pytest.mark.parametrize("words, answer", [
    (["one.hosts.test"], "198.51.100.1"),
    (["+tcp", "one.hosts.test"], "198.51.100.1"),
    (["one.hosts.test", "AAAA"], "2001:db8::1"),
    (["alias.hosts.test"], "one.hosts.test.\n198.51.100.1"),
    (["text.hosts.test", "TXT"], '"v=1"'),
    (["hosts.test", "MX"], "10 two.hosts.test."),
    (["_s._tcp.hosts.test", "SRV"], "0 0 443 two.hosts.test."),
    (["one.hosts.test", "HTTPS"], ""),
    (["ONE.Hosts.Test", "+noedns"], "198.51.100.1"),
])
def test_every_kind_of_record_is_answered_as_dnsmasq_says(session, words, answer):
    said, rows = session(ALLOW, *DIG, "@192.0.2.53", "+short", *words)
    assert said == answer, brief(rows)
    row = one(rows, kind="dns")
    assert row["rcode"] == "NOERROR" and row["protocol"] == ("tcp" if "+tcp" in words else "udp"), row
    assert row["rule"] == "hosts"


@pytest.mark.skipif(not pathlib.Path("/proc/net/if_inet6").exists(), reason="no IPv6 on this machine")
def test_questions_to_a_server_with_an_ipv6_address_are_led_here_too(session):
    for words in (["+notcp"], ["+tcp"]):
        said, rows = session(ALLOW, *DIG, "@2001:db8::53", "+short", *words, "one.hosts.test")
        assert said == "198.51.100.1"
        assert one(rows, kind="dns")["server"] == "2001:db8::53"


def test_a_datagram_without_connect_gets_its_answer_from_whom_it_asked(session, python):
    said, _ = session(ALLOW, *python("""
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(10)
s.sendto(b"\\0\\7\\1\\0\\0\\1\\0\\0\\0\\0\\0\\0\\3one\\5hosts\\4test\\0\\0\\1\\0\\1", ("192.0.2.53", 53))
answer, source = s.recvfrom(2000)
print(source, answer[-4:].hex())
"""))
    assert said == "('192.0.2.53', 53) c6336401"


def test_an_address_closes_when_its_answer_is_too_old(session, python):
    said, rows = session(ALLOW, *python(f"""
import errno, socket, time
def dial():
    try: socket.create_connection(("198.51.100.3", {PORT}), 5); return "reached"
    except OSError as e: return errno.errorcode[e.errno]
socket.getaddrinfo("short.hosts.test", None)
start = time.monotonic()
print(dial())
while dial() == "reached" and time.monotonic() < start + 60: time.sleep(0.2)
print(dial(), {GRACE} <= time.monotonic() - start <= {GRACE} + 10)
socket.getaddrinfo("short.hosts.test", None)
print(dial())
"""))
    assert said.split() == ["reached", "EPERM", "True", "reached"], brief(rows)


def test_a_name_that_leads_to_this_host_is_refused(session, python):
    said, _ = session(OPEN, *python(DIAL, "inner.hosts.test"))
    assert said == "reached"
    said, rows = session(ALLOW, *python(ASK, "inner.hosts.test"))
    assert said == "no such name"
    row = asked(rows, "inner.hosts.test", type="A")[0]
    assert (row["rule"], row["verdict"], row["enforced"], row["answers"]) == ("rebinding", "deny", True, ["127.0.0.1"])


def test_a_policy_that_only_records_leads_nothing(session):
    said, rows = session(ALLOW.replace("enforce\n", "monitor\n"), *DIG, f"@{SERVER}", "+short", "other.test")
    assert said == "203.0.113.9"
    assert not select(rows, kind="dns") and [r for r in rows if r.get("port") == 53]


@pytest.fixture
def name_service():
    """The socket of systemd-resolved: its own, or where there is none, one that accepts."""
    path = pathlib.Path("/run/systemd/resolve/io.systemd.Resolve")
    if path.exists():
        yield path
        return
    made = [p for p in (path.parent, *path.parent.parents) if not p.exists()]
    path.parent.mkdir(parents=True, exist_ok=True)
    with socket.socket(socket.AF_UNIX) as served:
        served.bind(str(path))
        path.chmod(0o666)
        served.listen(64)
        yield path
    path.unlink()
    for folder in made:
        folder.rmdir()


SERVICE = """
import errno, os, socket, sys
path = sys.argv[1]
if len(sys.argv) > 2: os.symlink(path, sys.argv[2]); path = sys.argv[2]
try: socket.socket(socket.AF_UNIX).connect(path); print("connected")
except OSError as e: print(errno.errorcode[e.errno])
"""


@pytest.mark.parametrize("name", ["its own", "a link"])
def test_who_else_answers_for_names_is_closed_where_the_policy_stops_some(session, python, work, name_service, name):
    link = [str(work / "link")] if name == "a link" else []
    words = python(SERVICE, str(name_service), *link)
    said, rows = session(OPEN, *words)
    assert said == "connected", brief(rows)
    (work / "link").unlink(missing_ok=True)
    # Also where a rule of the policy says otherwise.
    said, rows = session(ALLOW + f"unix_socket_rules: [{{name: open, paths: ['{name_service}'], decision: allow}}]\n", *words)
    assert said == "EACCES", brief(rows)
    row = one(rows, kind="unix_connect")
    assert (row["rule"], row["layer"], row["enforced"], row["errno_name"]) == ("name-services", "built-in", True, "EACCES"), row
    assert row["path"] == str(name_service) and row["mechanism"] in ("notify", "bpf_lsm"), row
    (work / "link").unlink(missing_ok=True)
    said, rows = session(ALLOW.replace("enforce\n", "monitor\n"), *words)
    assert said == "connected", brief(rows)


def listener_ports(daemon):
    """UDP ports on 127.0.0.1 that are the daemon's."""
    inodes = set()
    for fd in pathlib.Path(f"/proc/{daemon.pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            inodes.add(os.readlink(fd))
    lines = pathlib.Path("/proc/thread-self/net/udp").read_text().splitlines()[1:]
    return [int(w[1].split(":")[1], 16) for w in map(str.split, lines) if f"socket:[{w[9]}]" in inodes and w[1].startswith("0100007F:")]


def test_who_was_not_led_to_a_listener_gets_no_answer_and_it_ends_with_the_session(named, work, python):
    (work / "p.yaml").write_text(ALLOW)
    script = python("import socket, sys\nfor line in sys.stdin: print(socket.gethostbyname(line.strip()), flush=True)")
    with named.running(*script, options=("--policy", "./p.yaml"), cwd=work, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as (process, _):
        ports = wait_until(lambda: listener_ports(named), what="a listener")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
            for port in ports:
                stranger.sendto(b"\0\7\1\0\0\1\0\0\0\0\0\0\3one\5hosts\4test\0\0\1\0\1", ("127.0.0.1", port))
            process.stdin.write(b"one.hosts.test\n")
            process.stdin.flush()
            assert process.stdout.readline() == b"198.51.100.1\n"  # asked after the stranger
            stranger.setblocking(False)
            with pytest.raises(BlockingIOError):
                stranger.recv(100)
    wait_until(lambda: not listener_ports(named), what="no listener is left")


def test_names_go_on_after_a_restart_of_the_daemon_and_a_switch_of_the_policy(named, work, python):
    (work / "p.yaml").write_text(ALLOW)
    script = python("""
import socket, sys
for line in sys.stdin:
    try: print(socket.gethostbyname(line.strip()), flush=True)
    except socket.gaierror as e: print(e.errno == socket.EAI_NONAME and "no such name" or e, flush=True)
""")
    with named.running(*script, options=("--policy", "./p.yaml"), cwd=work, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as (process, name):

        def ask(what):
            process.stdin.write(what.encode() + b"\n")
            process.stdin.flush()
            return process.stdout.readline().decode().strip()

        assert ask("one.hosts.test") == "198.51.100.1"
        named.kill()
        named.start()
        assert ask("one.hosts.test") == "198.51.100.1"
        assert ask("other.test") == "no such name"
        (work / "q.yaml").write_text(ALLOW.replace("'**.hosts.test'", "other.test"))
        changed = named.am("session", "set-policy", name, "--policy", str(work / "q.yaml"), uid=UID)
        assert changed.status == 0, changed
        assert ask("one.hosts.test") == "no such name"
        assert ask("other.test") == "203.0.113.9"
