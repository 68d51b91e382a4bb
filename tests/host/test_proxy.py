"""The proxy of a user's daemon: what goes through it, what it stops, and whom it serves.

The whole test runs in a network namespace of its own, where addresses of the documentation ranges lie on the loopback and a
server that we did not write (dnsmasq) answers for names. Programs that we did not write ask: curl, wget, git, urllib, node.
Each refusal is tried without the rule first."""
import base64
import contextlib
import http.server
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import threading

import pytest

from harness import OTHER_UID, UID, as_user, brief, call, one, own_network, select, wait_until
from test_user_daemon import UserDaemon, policy

SERVER = "127.0.0.53"  # dnsmasq
ONE, TWO, OTHER = "198.51.100.1", "198.51.100.2", "203.0.113.9"
PORT, TLS, SHUT = 8080, 8443, 8999  # nobody may go to the last one
ZONE = f"""
port=53
listen-address={SERVER}
bind-interfaces
no-resolv
no-hosts
host-record=one.hosts.test,{ONE}
host-record=two.hosts.test,{TWO}
host-record=inner.hosts.test,127.0.0.1
host-record=meta.hosts.test,169.254.169.254
host-record=both.hosts.test,{ONE}
host-record=both.hosts.test,127.0.0.1
host-record=other.test,{OTHER}
"""
BASE = ("version: 1\nname: p\nposture: enforce\nenforcement: best_effort\n"
        "defaults: {command: allow, file_read: allow, file_write: allow, network: deny, unix_socket: allow, signal: allow}\n")
HOSTS = f"  - {{name: hosts, domains: ['**.hosts.test'], ports: [{PORT}, {TLS}], decision: allow}}\n"
NO_TWO = "  - {name: no-two, domains: [two.hosts.test], decision: deny, message: 'two is closed'}\n"
ALLOW = BASE + "network_rules:\n" + HOSTS
DENY = BASE + "network_rules:\n" + NO_TWO + HOSTS
OPEN = BASE.replace("network: deny", "network: allow") + "network_rules:\n" + NO_TWO  # all but two
VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy")


@pytest.fixture(scope="module")
def network():
    with own_network((ONE, TWO, OTHER, "169.254.169.254")):
        yield


class Server(http.server.ThreadingHTTPServer):
    """Answers on every address, and keeps what it was asked."""
    daemon_threads = True
    asked = []

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            pass

        def body(self):
            if self.headers.get("Transfer-Encoding") != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length", 0)))
            out = b""
            while size := int(self.rfile.readline(), 16):
                out += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return out

        def do_GET(self):
            body = self.body()
            Server.asked.append((self.command, self.path, list(self.headers.items()), body))
            file = pathlib.Path(self.server.folder, "." + self.path.partition("?")[0])
            answer = file.read_bytes() if file.is_file() else b"" if self.path == "/empty" else b"reached %d\n" % len(body)
            self.send_response(404 if self.path.startswith("/repo.git") and not file.is_file() else 200)
            if self.path == "/chunked":
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                for word in (b"one ", b"two"):
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(word), word))
                self.wfile.write(b"0\r\n\r\n")
                return
            self.send_header("Content-Length", str(len(answer)))
            self.send_header("X-Own", "kept")
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(answer)

        do_POST = do_HEAD = do_PUT = do_OPTIONS = do_GET


@pytest.fixture(scope="module")
def servers(network):
    folder = pathlib.Path("/run") / f"agentmon-proxy-{os.getpid()}"
    folder.mkdir(mode=0o755)
    (folder / "conf").write_text(ZONE)
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "key", "-out", "cert", "-days", "2", "-subj",
                    "/CN=one.hosts.test", "-addext", "subjectAltName=DNS:one.hosts.test"], cwd=folder, check=True, capture_output=True)
    processes = [subprocess.Popen(["dnsmasq", "--keep-in-foreground", f"--conf-file={folder}/conf", f"--pid-file={folder}/pid",
                                   "--user=root"], stdin=subprocess.DEVNULL),
                 subprocess.Popen(["openssl", "s_server", "-accept", f"{ONE}:{TLS}", "-key", "key", "-cert", "cert", "-www", "-quiet"],
                                  cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)]
    listeners = []
    for address in (ONE, TWO, OTHER, "127.0.0.1", "169.254.169.254"):
        for port in (PORT, SHUT):
            server = Server((address, port), Server.Handler)
            server.folder = folder
            listeners.append(server)
            threading.Thread(target=server.serve_forever, daemon=True).start()
    wait_until(lambda: call(["dig", "+short", "+time=2", f"@{SERVER}", "one.hosts.test"]).out == f"{ONE}\n".encode(), what="dnsmasq answers")
    yield folder
    for process in processes:
        process.terminate()
        process.wait(10)
    for server in listeners:
        server.shutdown()
        server.server_close()
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def named(servers, bin_dir):
    daemon = UserDaemon(bin_dir)
    daemon.write_config(f"log_level: debug\ndefault_policy: observe\nresolver: {{servers: '{SERVER}:53'}}\n")
    daemon.start()
    yield daemon
    daemon.close()


class Door:
    """The proxy of a running session, for programs of its user that are not in it."""

    def __init__(self, daemon, name):
        variables = dict(v.split("=", 1) for v in environment_of(daemon, name))
        match = re.fullmatch(r"http://session:([0-9a-f]{32})@127\.0\.0\.1:(\d+)", variables["HTTP_PROXY"])
        self.token, self.port = match[1], int(match[2])

    def authorization(self, token=None):
        return b"Proxy-Authorization: Basic " + base64.b64encode(f"session:{token or self.token}".encode()) + b"\r\n"

    def send(self, *pieces, uid=UID, wait=10):
        """What is answered to these bytes, until the proxy closes."""
        script = ("import socket, sys\ns = socket.create_connection(('127.0.0.1', int(sys.argv[1])), float(sys.argv[2]))\nout = b''\n"
                  "try:\n s.sendall(sys.stdin.buffer.read())\n while True:\n  piece = s.recv(65536)\n  if not piece: break\n  out += piece\n"
                  "except OSError as e: out += repr(e).encode()\nsys.stdout.buffer.write(out)\n")
        return call([*as_user(uid), "/usr/bin/python3", "-c", script, str(self.port), str(wait)], input=b"".join(pieces)).out

    def status(self, *pieces, **rest):
        answer = self.send(*pieces, **rest)
        return int(answer[9:12]) if answer.startswith(b"HTTP/1.1 ") else answer

    def get(self, target=f"http://one.hosts.test:{PORT}/", lines=b"", authorized=True):
        return b"".join((b"GET ", target.encode(), b" HTTP/1.1\r\nHost: x\r\n", self.authorization() if authorized else b"", lines, b"\r\n"))


def environment_of(daemon, name):
    """NAME=VALUE words of the first process of a running session."""
    pid = daemon.session(name)["first_pid"]
    return [v for v in pathlib.Path(f"/proc/{pid}/environ").read_text().split("\0") if "=" in v]


@contextlib.contextmanager
def door_of(daemon, work, name, text=ALLOW):
    ready = work / f"{name}-ready"
    with daemon.running(name, "sh", "-c", f"touch {ready}; exec sleep 300", options=policy(work, text), cwd=work):
        wait_until(ready.exists, what="the agent runs")
        yield Door(daemon, name)


def run(daemon, work, name, *words, text=ALLOW):
    """The result of a program in a session, and the session's rows."""
    result = daemon.run(name, *words, options=policy(work, text), cwd=work)
    return result, daemon.ended(name)


CURL = ["curl", "-sS", "--max-time", "20", "-g"]
URL = f"http://one.hosts.test:{PORT}"
URLLIB = ("/usr/bin/python3", "-c", "import sys, urllib.request, urllib.error\ntry: print(urllib.request.urlopen(sys.argv[1], timeout=20).read().decode(), end='')\n"
          "except urllib.error.HTTPError as e: print(e.code, e.read().decode(), end='')")
SOCKS = ["sh", "-c", 'exec curl -sS --max-time 20 --proxy "socks5h://${HTTP_PROXY#http://}" "$@"', "curl"]


def test_only_where_the_policy_stops_connections_the_environment_names_a_proxy(named, work, shared_daemon):
    result, rows = run(named, work, "set", "env")
    got = dict(line.split("=", 1) for line in result.out.decode().splitlines() if "=" in line)
    assert len({got[v] for v in VARIABLES}) == 1 and got["HTTP_PROXY"].startswith("http://session:")
    assert not select(rows, source="proxy"), brief(rows)  # the self-test is no doing of the agent's
    for name, text in (("unset-records", ALLOW.replace("posture: enforce", "posture: monitor")),
                       ("unset-allows", BASE.replace("network: deny", "network: allow"))):
        result, _ = run(named, work, name, "env", text=text)
        assert result.status == 0 and not any(f"{v}=".encode() in result.out for v in VARIABLES), result
    assert b"_PROXY=" not in shared_daemon.run("env").out


def test_the_control_says_what_it_holds_for(named, work):
    with named.running("shown", "sleep", "300", options=policy(work, DENY)):
        shown = json.loads(named.am("session", "show", "--json", "shown").out)
        control = one(shown["controls"], control="proxy")
        assert control["active"] and control["mechanism"] == "proxy", control
        assert one(shown["sources"], source="proxy")["active"]
        text = named.am("session", "show", "shown").out.decode()
        assert any(" asked: " in line and "no-two" in line for line in text.splitlines()), text
        rules = {r["rule"]: (r["enforced"], r["mechanism"]) for r in shown["policy"]["rules"]}
        assert rules["no-two"] == ("asked", "proxy") and rules["default for network"] == ("kernel", "seccomp"), rules
    assert one(json.loads(named.am("status", "--json").out)["sources"], source="proxy")["active"]
    # Where other addresses are open, who does without the proxy does without the rule.
    with named.running("open", "sleep", "300", options=policy(work, OPEN)):
        text = named.am("session", "show", "open").out.decode()
        assert "1 rule holds for what uses the session's proxy, and for nothing else: no-two" in text, text
    required = named.run("required", "true", options=policy(work, OPEN.replace("enforcement: best_effort\n", "")))
    assert required.status == 125 and b"no-two" in required.err, required
    assert named.run("required-and-had", "true", options=policy(work, DENY.replace("enforcement: best_effort\n", ""))).status == 0


@pytest.mark.parametrize("program", [[*CURL, f"{URL}/x?secret=1"], ["wget", "-q", "-O", "-", f"{URL}/x?secret=1"], [*URLLIB, f"{URL}/x?secret=1"]],
                         ids=["curl", "wget", "urllib"])
def test_programs_reach_what_is_allowed(named, work, program):
    name = f"reach-{pathlib.Path(program[0]).name}"
    result, rows = run(named, work, name, *program)
    assert (result.status, result.out) == (0, b"reached 0\n"), result
    http_row = one(rows, kind="http")
    assert (http_row["method"], http_row["host"], http_row["port"], http_row["path"], http_row["status"]) == ("GET", "one.hosts.test", PORT, "/x", 200)
    assert pathlib.Path(http_row["exe"]).name.startswith(pathlib.Path(program[0]).name[:6]), http_row
    row = one(rows, kind="connect")
    assert (row["name"], row["address"], row["port"], row["result"], row["verdict"], row["rule"]) == ("one.hosts.test", ONE, PORT, "ok", "allow", "hosts")
    method, path, headers, _ = Server.asked[-1]
    assert path == "/x?secret=1" and ("Host", f"one.hosts.test:{PORT}") in headers
    assert not [h for h in headers if h[0].lower().startswith("proxy-")], headers
    timeline = named.am("timeline", "--session", name).out.decode()
    assert f"GET one.hosts.test:{PORT}/x → 200" in timeline and "secret" not in "".join(json.dumps(r) for r in rows if r["source"] == "proxy")


def test_https_goes_through_connect(named, servers, work):
    result, rows = run(named, work, "tls", *CURL, "--cacert", str(servers / "cert"), "-o", "/dev/null", "-w", "%{http_code}", f"https://one.hosts.test:{TLS}/")
    assert (result.status, result.out) == (0, b"200"), result
    row = one(rows, kind="http")
    assert (row["method"], row["host"], row["port"], row["status"]) == ("CONNECT", "one.hosts.test", TLS, 200) and "path" not in row
    one(rows, kind="connect", name="one.hosts.test", address=ONE, result="ok")


def test_socks_goes_by_name_and_by_address(named, work):
    text = ALLOW + f"  - {{name: address, cidrs: [{OTHER}], ports: [{PORT}], decision: allow}}\n"
    result, rows = run(named, work, "socks", *SOCKS, f"{URL}/", f"http://{OTHER}:{PORT}/", text=text)
    assert (result.status, result.out) == (0, b"reached 0\nreached 0\n"), result
    assert one(rows, kind="connect", name="one.hosts.test")["rule"] == "hosts"
    assert one(rows, kind="connect", address=OTHER)["rule"] == "address"
    denied, rows = run(named, work, "socks-denied", *SOCKS, f"http://two.hosts.test:{PORT}/", text=DENY)
    assert denied.status == 97, denied  # CURLE_PROXY
    assert one(rows, kind="connect", verdict="deny")["rule"] == "no-two"
    control, _ = run(named, work, "socks-control", *SOCKS, f"http://two.hosts.test:{PORT}/")
    assert control.out == b"reached 0\n", control


def test_git_clones_through_it(named, servers, work):
    script = ("git init -q -b main src && cd src && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m one && cd .. && "
              "git clone -q --bare src repo.git && cd repo.git && git update-server-info")
    subprocess.run(["sh", "-c", script], cwd=servers, check=True, env={**os.environ, "HOME": str(servers)})
    result, rows = run(named, work, "git", "git", "clone", "-q", f"{URL}/repo.git", "copy")
    assert result.status == 0 and (work / "copy/.git").is_dir(), result
    assert select(rows, kind="http", host="one.hosts.test", status=200)


@pytest.mark.skipif(call(["/usr/bin/python3", "-c", "import httpx"]).status != 0, reason="no httpx")
def test_a_library_that_looks_at_every_variable_begins(named, work):
    result, _ = run(named, work, "httpx", "/usr/bin/python3", "-c", f"import httpx; print(httpx.get('{URL}/').text, end='')")
    assert result.out == b"reached 0\n", result


@pytest.mark.skipif(shutil.which("node") is None, reason="no node")
def test_node_goes_through_connect(named, work):
    script = (f"const u = new URL(process.env.HTTP_PROXY);\nrequire('http').request({{host: u.hostname, port: u.port, method: 'CONNECT', path: 'one.hosts.test:{PORT}',\n"
              " headers: {'Proxy-Authorization': 'Basic ' + Buffer.from(u.username + ':' + u.password).toString('base64')}}).on('connect', (r, s) => {\n"
              "  s.end('GET / HTTP/1.0\\r\\n\\r\\n'); s.on('data', d => process.stdout.write(d)); }).end();")
    result, rows = run(named, work, "node", "node", "-e", script)
    assert b"reached 0" in result.out, result
    one(rows, kind="http", method="CONNECT", status=200)


def test_more_than_fits_into_any_buffer_passes(named, servers, work):
    size = 60_000_000
    (servers / "big").write_bytes(os.urandom(1_000_000) * (size // 1_000_000))
    (servers / "big").chmod(0o644)
    slow = f"curl -sS -N --max-time 60 {URL}/big | cmp - {servers}/big && echo same"
    up = f"curl -sS --max-time 60 -T {servers}/big {URL}/up"
    result, _ = run(named, work, "big", "sh", "-c", f"{slow}; {up}", text=ALLOW)
    assert (result.status, result.out) == (0, b"same\nreached %d\n" % size), result


def test_bodies_pass_unchanged_both_ways(named, servers, work):
    data = os.urandom(300_000)
    (work / "data").write_bytes(data)
    result, rows = run(named, work, "bodies", *CURL, "--data-binary", "@data", f"{URL}/a", "--next", "-sS", "--data-binary", "@data", "-H",
                       "Transfer-Encoding: chunked", f"{URL}/b", "--next", "-sS", f"{URL}/chunked", "--next", "-sS", "-I", "-o", "/dev/null", f"{URL}/head",
                       "--next", "-sS", f"{URL}/empty")
    assert (result.status, result.out) == (0, b"reached 300000\nreached 300000\none two"), result
    asked = {path: (method, body) for method, path, _, body in Server.asked}
    assert asked["/a"] == asked["/b"] == ("POST", data)
    assert {r["path"] for r in select(rows, kind="http", status=200)} == {"/a", "/b", "/chunked", "/head", "/empty"}


@pytest.mark.parametrize("program", [[*CURL, "-w", "%{http_code}"], ["wget", "-S", "-O", "-"], URLLIB], ids=["curl", "wget", "urllib"])
def test_a_denied_name_is_answered_with_the_rule(named, work, program):
    name = f"no-{pathlib.Path(program[0]).name}"
    url = f"http://two.hosts.test:{PORT}/x"
    control, _ = run(named, work, name + "-control", *program, url)
    assert b"reached 0" in control.out, control
    before = len(Server.asked)
    result, rows = run(named, work, name, *program, url, text=DENY)
    assert b"403" in result.out + result.err, result
    if "wget" not in name:
        assert b"denied by no-two (" in result.out and b"p.yaml:" in result.out and b"two is closed" in result.out, result
    row = select(rows, kind="connect", verdict="deny")[0]
    assert row["enforced"] and row["mechanism"] == "proxy" and row["rule"] == "no-two" and row["name"] == "two.hosts.test"
    assert row["rule_line"] > 0 and row["address"] == "" and row["port"] == PORT and row["source"] == "proxy"
    assert select(rows, kind="http", status=403, host="two.hosts.test")
    assert len(Server.asked) == before


def test_port_address_and_unknown_names_are_judged(named, work):
    def code(name, url, text=ALLOW):
        result, rows = run(named, work, name, *CURL, "-o", "/dev/null", "-w", "%{http_code}", url, text=text)
        return result.out.decode(), rows

    assert code("port", f"http://one.hosts.test:{SHUT}/")[0] == "403"
    assert code("port-control", f"http://one.hosts.test:{SHUT}/", OPEN)[0] == "200"
    status, rows = code("address", f"http://{OTHER}:{PORT}/")
    assert status == "403" and one(rows, kind="connect")["address"] == OTHER and one(rows, kind="connect")["rule"] == "default for network"
    assert code("address-control", f"http://{OTHER}:{PORT}/", OPEN)[0] == "200"
    assert code("no-name", f"http://nowhere.hosts.test:{PORT}/")[0] == "502"
    assert code("nobody", f"http://one.hosts.test:{PORT + 1}/", OPEN)[0] == "502"
    row = one(code("failed", f"http://one.hosts.test:{PORT + 1}/", OPEN)[1], kind="connect")
    assert row["result"] == "failed" and row["error"] == "ECONNREFUSED" and row["verdict"] == "allow"


def test_names_do_not_lead_into_the_host(named, work):
    for name in ("inner", "meta"):
        result, rows = run(named, work, name, *CURL, f"http://{name}.hosts.test:{PORT}/")
        assert b"denied by rebinding" in result.out, result
        row = one(rows, kind="connect")
        assert row["verdict"] == "deny" and row["enforced"] and row["rule"] == "rebinding" and row["name"] == f"{name}.hosts.test"
    loopback = ALLOW + f"  - {{name: loopback, cidrs: [127.0.0.1], ports: [{PORT}], decision: allow}}\n"
    result, _ = run(named, work, "inner-control", *CURL, f"http://inner.hosts.test:{PORT}/", text=loopback)
    assert result.out == b"reached 0\n", result
    # One good address is enough, and the other one is told.
    result, rows = run(named, work, "both", *CURL, f"http://both.hosts.test:{PORT}/")
    assert result.out == b"reached 0\n" and one(rows, kind="connect", verdict="deny")["address"] == "127.0.0.1", result


@pytest.mark.parametrize("host", ["127.0.0.1", "2130706433", "0x7f.1", "0.0.0.0", "[::ffff:127.0.0.1]", "169.254.169.254"])
def test_the_host_is_judged_by_its_address_in_every_spelling(named, work, host):
    loopback = OPEN + "  - {name: no-host, cidrs: [127.0.0.0/8, 0.0.0.0, 169.254.0.0/16], decision: deny}\n"
    name = "spelled-" + re.sub(r"\W", "-", host)
    with door_of(named, work, name, loopback) as door:
        assert door.status(door.get(f"http://{host}:{PORT}/")) == 403
    with door_of(named, work, name + "-control", OPEN) as door:
        assert door.status(door.get(f"http://{host}:{PORT}/")) == 200


def test_no_proxy_leads_to_a_proxy(named, work):
    with door_of(named, work, "loop", OPEN) as door, door_of(named, work, "loop-other", OPEN) as other:
        for port in (door.port, other.port):
            for host in ("127.0.0.1", "0.0.0.0", "localhost", "2130706433"):
                answer = door.send(f"CONNECT {host}:{port} HTTP/1.1\r\n".encode(), door.authorization(), b"\r\n")
                assert answer.startswith(b"HTTP/1.1 403") and b"proxies of agentmon" in answer, answer


def test_only_the_session_has_the_key(named, work):
    with door_of(named, work, "key") as door, door_of(named, work, "key-other") as other:
        assert door.status(door.get()) == 200
        assert door.status(door.get(authorized=False)) == 407
        line = b"GET http://one.hosts.test:%d/ HTTP/1.1\r\nHost: x\r\n" % PORT
        for wrong in (door.authorization(other.token), door.authorization("0" * 32), b"Proxy-Authorization: Basic !\r\n",
                      b"Proxy-Authorization: Bearer " + door.token.encode() + b"\r\n", b"Authorization: Basic " + base64.b64encode(b"session:" + door.token.encode()) + b"\r\n"):
            assert door.status(line, wrong, b"\r\n") == 407, wrong
        for uid in (OTHER_UID, 0):
            assert not door.send(door.get(), uid=uid).startswith(b"HTTP"), uid
        good = b"\x05\x01\x02\x01\x07session\x20"
        connect = b"\x05\x01\x00\x03\x0eone.hosts.test" + PORT.to_bytes(2, "big") + b"GET / HTTP/1.0\r\n\r\n"
        assert b"reached 0" in door.send(good + door.token.encode() + connect)
        assert door.send(good + other.token.encode() + connect) == b"\x05\x02\x01\x01"
        assert door.send(b"\x05\x01\x00" + connect) == b"\x05\xff"
    rows = named.ended("key")
    assert len(select(rows, kind="http")) == 1, brief(rows)


def test_what_is_no_sound_request_is_refused(named, work):
    before = len(Server.asked)
    with door_of(named, work, "bad") as door:
        key = door.authorization()
        post = f"POST http://one.hosts.test:{PORT}/smuggled HTTP/1.1\r\nHost: x\r\n".encode() + key
        for name, status, data in (
                ("both lengths", 400, post + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
                ("two lengths", 400, post + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabc"),
                ("another coding", 400, post + b"Transfer-Encoding: gzip\r\n\r\nabc"),
                ("hidden coding", 400, post + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n"),
                ("length of one hop", 400, post + b"Connection: content-length\r\nContent-Length: 3\r\n\r\nabc"),
                ("bare line end", 400, post + b"A: b\nX-Injected: c\r\n\r\n"),
                ("null", 400, post + b"A: b\0c\r\n\r\n"),
                ("large head", 431, post + b"A: " + b"a" * 70000 + b"\r\n\r\n"),
                ("garbage", 400, b"\x16\x03\x01\x02\x00 garbage\r\n\r\n"),
                ("no proxy request", 400, b"GET /x HTTP/1.1\r\nHost: one.hosts.test\r\n" + key + b"\r\n"),
                ("https without connect", 400, b"GET https://one.hosts.test/ HTTP/1.1\r\nHost: x\r\n" + key + b"\r\n"),
                ("another scheme", 400, b"GET ftp://one.hosts.test/ HTTP/1.1\r\nHost: x\r\n" + key + b"\r\n"),
                ("line end in the target", 400, b"CONNECT one.hosts.test:80\rX HTTP/1.1\r\n" + key + b"\r\n"),
                ("no port", 400, b"CONNECT one.hosts.test HTTP/1.1\r\n" + key + b"\r\n"),
                ("connect with a body", 400, b"CONNECT one.hosts.test:80 HTTP/1.1\r\nContent-Length: 3\r\n" + key + b"\r\nabc"),
                ("denied port", 403, b"CONNECT one.hosts.test:%d HTTP/1.1\r\n" % SHUT + key + b"\r\n")):
            assert door.status(data) == status, name
        assert len(Server.asked) == before
        # What comes behind a request was judged by nobody, and goes nowhere.
        answer = door.send(door.get(), b"GET /second HTTP/1.1\r\nHost: two.hosts.test\r\n\r\n")
        assert answer.count(b"reached 0") == 1 and [a[1] for a in Server.asked[before:]] == ["/"], answer
        assert b"X-Own: kept" in answer and b"Connection: close" in answer
        # A user in the target is nobody's business, and does not change where it leads.
        assert door.status(door.get(f"http://me:hunter2@one.hosts.test:{PORT}/user")) == 200
        assert not [h for h in Server.asked[-1][2] if h[0] == "Authorization"]
        assert door.status(door.get(f"http://one.hosts.test:{PORT}@two.hosts.test:{SHUT}/")) == 403
    rows = named.ended("bad")
    assert "hunter2" not in json.dumps(rows) and select(rows, kind="http", path="/user", host="one.hosts.test")


def test_half_a_request_is_not_held_for_ever(named, work):
    with door_of(named, work, "slow") as door:
        for held, end in ((b"GET http://one.ho", b"HTTP/1.1 408"), (b"\x05\x01", b""), (b"", b"")):
            script = ("import socket, sys, time\nt = time.monotonic()\ns = socket.create_connection(('127.0.0.1', int(sys.argv[1])), 40)\ns.sendall(sys.stdin.buffer.read())\nprint(s.recv(12), round(time.monotonic() - t))")
            result = call([*as_user(UID), "/usr/bin/python3", "-c", script, str(door.port)], input=held)
            answer, seconds = result.out.decode().rsplit(" ", 1)
            assert answer.startswith(repr(end)[:-1]) and 14 <= int(seconds) <= 25, result


def test_connections_of_a_session_are_bounded_and_others_wait(named, work):
    script = ("import socket, sys\nheld = [socket.create_connection(('127.0.0.1', int(sys.argv[1])), 5) for _ in range(150)]\n"
              "for s in held: s.sendall(b'G')\nprint('held', flush=True)\nsys.stdin.read()\n")
    with door_of(named, work, "flood") as door, door_of(named, work, "flood-other") as other:
        flood = subprocess.Popen([*as_user(UID), "/usr/bin/python3", "-c", script, str(door.port)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert flood.stdout.readline() == b"held\n"
        wait_until(lambda: connections(named.process.pid, door.port) == 128, what="so many are taken")
        assert other.status(other.get()) == 200  # another session is served
        assert connections(named.process.pid, door.port) == 128
        flood.stdin.close()
        flood.wait(10)
        assert door.status(door.get()) == 200


def connections(pid, port):
    """How many sockets of this process are connected at this local port."""
    own = set()
    for link in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            own.add(os.readlink(link))
    count = 0
    for line in pathlib.Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        count += int(fields[1].rpartition(":")[2], 16) == port and fields[3] == "01" and f"socket:[{fields[9]}]" in own
    return count


def test_the_door_is_the_same_after_the_daemon_came_again(named, work):
    with door_of(named, work, "again") as door:
        named.kill()
        assert not door.send(door.get()).startswith(b"HTTP")
        named.start()
        assert door.status(door.get()) == 200
        assert door.status(door.get(authorized=False)) == 407
        assert door.status(door.get(f"http://one.hosts.test:{SHUT}/")) == 403
        shown = json.loads(named.am("session", "show", "--json", "again").out)
        assert one(shown["controls"], control="proxy")["active"]
    one(named.ended("again"), kind="connect", verdict="deny")


def test_a_door_that_somebody_else_has_taken_meanwhile_is_told(named, work):
    with door_of(named, work, "taken") as door:
        named.kill()
        with socket.create_server(("127.0.0.1", door.port)):
            named.start()
            control = one(json.loads(named.am("session", "show", "--json", "taken").out)["controls"], control="proxy")
            assert not control["active"] and f"127.0.0.1:{door.port}" in control["why"], control


def test_a_proxy_that_was_set_before_is_not_used_and_errors_say_so(named, work):
    words = named.words("run", "--user", "--name", "chained", *policy(work, ALLOW), "--", *CURL, "http://nowhere.hosts.test:8080/")
    result = call(words, env=named.env(http_proxy=f"http://{ONE}:{PORT}"), cwd=work)
    assert b"set outside of the session is not used" in result.out, result
    named.ended("chained")


def test_a_policy_that_is_switched_counts_from_the_next_request(named, work):
    with door_of(named, work, "switched") as door:
        url = f"http://two.hosts.test:{PORT}/"
        assert door.status(door.get(url)) == 200
        assert named.am("session", "set-policy", "switched", *policy(work, DENY)[:2]).status == 0
        assert door.status(door.get(url)) == 403


def test_a_session_that_ends_closes_its_door(named, work):
    with door_of(named, work, "closed") as door:
        assert door.status(door.get()) == 200
        assert named.am("session", "stop", "closed").status == 0
        named.ended("closed")
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", door.port), 5)
