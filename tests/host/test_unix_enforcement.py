"""What a policy denies of unix sockets, as programs see it and as it is stored. Each act is tried without the rule, too."""
import contextlib
import os
import pathlib
import signal
import socket
import struct
import subprocess
import threading

import pytest

from harness import UID, one, select, wait_until

BASE = "defaults: {command: allow, file_read: allow, file_write: allow, network: allow, unix_socket: %s, signal: allow}\n"
RULES = """unix_socket_rules:
  - name: no-secrets
    paths: ["%s/secret/**", "@%s-host-*"]
    decision: deny
    message: "not {{.Path}}"
"""
MECHANISM = "notify, cgroup_bpf"


def policy(work, rules="", default="allow", name="p.yaml", extra=""):
    (work / name).write_text(f"version: 1\nname: p\nposture: enforce\n{extra}{BASE % default}{rules}")
    return ("--policy", f"./{name}")


@pytest.fixture
def deny(work):
    return policy(work, RULES % (work, work.name))


class Server:
    """Sockets outside of every session: streams answer with the caller's credentials, datagrams are kept."""

    def __init__(self, sockets):
        self.sockets = sockets
        self.datagrams = []
        self.callers = []

    def stream(self, address, kind=socket.SOCK_STREAM):
        s = self.sockets.enter_context(socket.socket(socket.AF_UNIX, kind))
        s.bind(address)
        self._open(address)
        s.listen(64)
        threading.Thread(target=self._serve, args=(s,), daemon=True).start()
        return s

    def datagram(self, address):
        s = self.sockets.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
        s.bind(address)
        self._open(address)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        threading.Thread(target=self._keep, args=(s,), daemon=True).start()
        return s

    @staticmethod
    def _open(address):
        if not address.startswith("\0"):
            os.chmod(address, 0o666)

    def _serve(self, s):
        with contextlib.suppress(OSError):
            while True:
                with s.accept()[0] as peer:
                    caller = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
                    self.callers.append(caller)
                    with contextlib.suppress(OSError):
                        peer.sendall(b"%d %d %d" % caller)

    def _keep(self, s):
        with contextlib.suppress(OSError):
            while True:
                data, ancillary, _, _ = s.recvmsg(99, 99)
                self.datagrams.append((data, struct.unpack("3i", ancillary[0][2]) if ancillary else None))


@pytest.fixture
def server():
    with contextlib.ExitStack() as sockets:
        yield Server(sockets)


@pytest.fixture
def places(work, server):
    """Denied: secret/s (stream), secret/d (datagram), @NAME-host-s, @NAME-host-d; allowed: the same in open/ and @NAME-free-*."""
    for folder in ("secret", "open"):
        (work / folder).mkdir()
        os.chown(work / folder, UID, UID)
        server.stream(f"{work}/{folder}/s")
        server.datagram(f"{work}/{folder}/d")
    for part in ("host", "free"):
        server.stream(f"\0{work.name}-{part}-s")
        server.datagram(f"\0{work.name}-{part}-d")
    return server


# Prints "done", or the errno's name.
TRY = """
import array, ctypes, errno, os, socket, sys, threading
W, N = sys.argv[1], os.path.basename(sys.argv[1])
def stream(address):
    s = socket.socket(socket.AF_UNIX); s.settimeout(5); s.connect(address); assert s.recv(99); return s
def datagram():
    return socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
try:
    {act}
    print("done")
except OSError as e:
    print(errno.errorcode[e.errno])
"""

SENDMMSG = """
class Head(ctypes.Structure):
    _fields_ = [("name", ctypes.c_void_p), ("length", ctypes.c_uint32), ("iov", ctypes.c_void_p), ("count", ctypes.c_size_t),
                ("control", ctypes.c_void_p), ("control_length", ctypes.c_size_t), ("flags", ctypes.c_int), ("sent", ctypes.c_uint32)]
class Piece(ctypes.Structure):
    _fields_ = [("base", ctypes.c_char_p), ("length", ctypes.c_size_t)]
def sendmmsg(fd, addresses):
    heads = (Head * len(addresses))(); kept = []
    for head, address in zip(heads, addresses):
        raw = ctypes.create_string_buffer(b"\\1\\0" + address.encode(), 2 + len(address)); piece = Piece(b"x", 1); kept += [raw, piece]
        head.name, head.length = ctypes.addressof(raw), 2 + len(address)
        head.iov, head.count = ctypes.addressof(piece), 1
    sent = ctypes.CDLL(None, use_errno=True).sendmmsg(fd, heads, len(addresses), 0)
    if sent < 0: raise OSError(ctypes.get_errno(), "")
    return sent
"""

# name: (what is done to the socket in {place}, kind of the row, the stored path below the folder)
ACTS = {
    "by path": ("stream(W + '/{place}/s')", "unix_connect", "{place}/s"),
    "by a symbolic link": ("os.symlink(W + '/{place}/s', W + '/l'); stream(W + '/l')", "unix_connect", "{place}/s"),
    "by a link to the folder": ("os.symlink('{place}', W + '/f'); stream(W + '/f/s')", "unix_connect", "{place}/s"),
    "relative": ("os.chdir(W + '/{place}'); stream('s')", "unix_connect", "{place}/s"),
    "up and down": ("os.chdir(W + '/{place}'); stream('../open/../{place}/./s')", "unix_connect", "{place}/s"),
    "by a descriptor": ("stream('/proc/self/fd/%d/s' % os.open(W + '/{place}', os.O_PATH))", "unix_connect", "{place}/s"),
    "by its own descriptor": ("stream('/proc/self/fd/%d' % os.open(W + '/{place}/s', os.O_PATH))", "unix_connect", "{place}/s"),
    "by its directory of procfs": ("os.chdir(W + '/{place}'); stream('/proc/%d/cwd/s' % os.getpid())", "unix_connect", "{place}/s"),
    "from a child": ("p = os.fork()\n    if p == 0:\n        try: stream(W + '/{place}/s'); os._exit(0)\n        except OSError as e: os._exit(e.errno)\n"
                     "    e = os.waitstatus_to_exitcode(os.waitpid(p, 0)[1])\n    if e: raise OSError(e, '')", "unix_connect", "{place}/s"),
    "datagram, sendto": ("datagram().sendto(b'x', W + '/{place}/d')", "unix_send", "{place}/d"),
    "datagram, sendmsg": ("datagram().sendmsg([b'x'], [], 0, W + '/{place}/d')", "unix_send", "{place}/d"),
    "datagram, connected": ("s = datagram(); s.connect(W + '/{place}/d'); s.send(b'x')", "unix_connect", "{place}/d"),
    "datagram, sendmmsg": (SENDMMSG.strip().replace("\n", "\n    ").replace("{", "{{").replace("}", "}}") +
                           "\n    s = datagram(); sendmmsg(s.fileno(), [W + '/{place}/d'] * 3)", "unix_send", "{place}/d"),
}
ABSTRACT = {
    "connect": ("stream('\\0' + N + '-{part}-s')", "unix_connect", "s"),
    "sendto": ("datagram().sendto(b'x', '\\0' + N + '-{part}-d')", "unix_send", "d"),
    "sendmsg": ("datagram().sendmsg([b'x'], [], 0, '\\0' + N + '-{part}-d')", "unix_send", "d"),
    "connected datagrams": ("s = datagram(); s.connect('\\0' + N + '-{part}-d'); s.send(b'x')", "unix_connect", "d"),
}


@pytest.mark.parametrize("act", ACTS)
def test_a_denied_socket_is_not_reached(daemon, work, python, places, deny, act):
    code, kind, path = ACTS[act]
    denied = python(TRY.replace("{act}", code.format(place="secret")), work)
    allowed = python(TRY.replace("{act}", code.format(place="open")), work)
    stopped = daemon.run(*denied, cwd=work, options=deny)
    assert stopped.out.decode().split() == ["EACCES"], stopped
    assert not places.callers and not places.datagrams
    rows = daemon.events(stopped.name)
    row = one(select(rows, enforced=True), kind=kind)
    assert (row["rule"], row["mechanism"], row["errno_name"], row["verdict"]) == ("no-secrets", "notify", "EACCES", "deny"), row
    assert row["path"] == f"{work}/{path.format(place='secret')}", row
    assert row["message"] == f"not {row['path']}", row
    for name in ("l", "f"):
        (work / name).unlink(missing_ok=True)
    passed = daemon.run(*allowed, cwd=work, options=deny)
    assert passed.out.decode().split() == ["done"], passed
    row = one(select(daemon.events(passed.name), verdict="allow"), kind=kind)
    assert row["path"] == f"{work}/{path.format(place='open')}", row
    for name in ("l", "f"):
        (work / name).unlink(missing_ok=True)
    free = daemon.run(*denied, cwd=work, options=("--policy", "observe"))
    assert free.out.decode().split() == ["done"], free  # the control


@pytest.mark.parametrize("act", ABSTRACT)
def test_a_denied_abstract_name_is_not_reached(daemon, work, python, places, deny, act):
    code, kind, suffix = ABSTRACT[act]
    denied = python(TRY.replace("{act}", code.format(part="host")), work)
    stopped = daemon.run(*denied, cwd=work, options=deny)
    assert stopped.out.decode().split() == ["EACCES"], stopped
    assert not places.callers and not places.datagrams
    row = one(select(daemon.events(stopped.name), enforced=True), kind=kind)
    assert (row["rule"], row["errno_name"], row["path"]) == ("no-secrets", "EACCES", f"@{work.name}-host-{suffix}"), row
    passed = daemon.run(*python(TRY.replace("{act}", code.format(part="free")), work), cwd=work, options=deny)
    assert passed.out.decode().split() == ["done"], passed
    free = daemon.run(*denied, cwd=work, options=("--policy", "observe"))
    assert free.out.decode().split() == ["done"], free


def test_a_hard_link_to_a_denied_socket_leads_nowhere(daemon, work, python, places, deny):
    os.chown(work / "secret/s", UID, UID)
    words = python(TRY.replace("{act}", "os.link(W + '/secret/s', W + '/h'); stream(W + '/h')"), work)
    stopped = daemon.run(*words, cwd=work, options=deny)
    assert stopped.out.decode().split() == ["EACCES"], stopped
    assert not places.callers
    (work / "h").unlink(missing_ok=True)
    free = daemon.run(*words, cwd=work, options=("--policy", "observe"))
    assert free.out.decode().split() == ["done"], free


@pytest.mark.parametrize("act", ["os.rename(W + '/secret/s', W + '/m'); stream(W + '/m')",
                                 "os.rename(W + '/secret', W + '/moved'); stream(W + '/moved/s')"])
def test_a_denied_socket_that_is_moved_stays_denied(daemon, work, python, places, deny, act):
    words = python(TRY.replace("{act}", act), work)
    stopped = daemon.run(*words, cwd=work, options=deny)
    assert stopped.out.decode().split() == ["EACCES"], stopped
    assert not places.callers
    row = one(select(daemon.events(stopped.name), enforced=True), kind="unix_connect")
    assert (row["rule"], row["errno_name"], row["mechanism"]) == ("no-secrets", "EACCES", "notify"), row
    (work / "moved").rename(work / "secret") if (work / "moved").exists() else (work / "m").rename(work / "secret/s")
    free = daemon.run(*words, cwd=work, options=("--policy", "observe"))
    assert free.out.decode().split() == ["done"], free


def test_a_socket_that_is_moved_by_its_server_is_reached(daemon, work, python, places, deny):
    (work / "open/s").rename(work / "open/t")
    passed = daemon.run(*python(TRY.replace("{act}", "stream(W + '/open/t')"), work), cwd=work, options=deny)
    assert passed.out.decode().split() == ["done"], passed


def test_the_control_is_proven_and_rules_are_listed_as_they_are(daemon, work, deny):
    rules = RULES % (work, work.name) + "  - {name: no-bind, paths: ['/x'], operations: [bind], decision: deny}\n"
    options = policy(work, rules, extra="enforcement: best_effort\n")
    with daemon.running("sleep", "60", cwd=work, options=options) as (_, name):
        session = daemon.session(name)
        tried = one([{**c, "control": c.get("control")} for c in session["controls"]], control="unix")
        assert (tried["active"], tried["mechanism"]) == (True, MECHANISM), tried
        listed = {r["rule"]: r for r in session["policy"]["rules"]}
        assert (listed["no-secrets"]["enforced"], listed["no-secrets"]["mechanism"]) == ("kernel", MECHANISM), listed
        assert listed["no-bind"]["enforced"] == "none", listed
    rows = daemon.events(name)
    assert not select(rows, enforced=True), rows  # what the shim tried is not the agent's


def test_who_calls_is_seen_as_without_a_session(daemon, work, python, places, deny):
    code = TRY.replace("{act}", """
        print(os.getpid(), os.getuid(), os.getgid())
        s = socket.socket(socket.AF_UNIX); s.settimeout(5); s.connect(W + '/open/s'); print(s.recv(99).decode()); print(s.getpeername() == W + '/open/s')
        d = datagram(); d.sendto(b'x', W + '/open/d')
    """.strip().replace("\n        ", "\n    "))
    ran = daemon.run(*python(code, work), cwd=work, options=deny)
    lines = ran.out.decode().splitlines()
    assert lines[0] == lines[1] and lines[2:] == ["True", "done"], ran
    wait_until(lambda: places.datagrams)
    assert places.datagrams[0][1] == tuple(map(int, lines[0].split()))


ERRORS = """
import errno, os, socket, sys
W = sys.argv[1]
def name(act):
    try: act(); return "done"
    except OSError as e: return errno.errorcode[e.errno]
def connect(address, kind=socket.SOCK_STREAM, blocking=True):
    s = socket.socket(socket.AF_UNIX, kind); s.setblocking(blocking); return name(lambda: s.connect(address))
os.mkdir(W + "/closed", 0o700); os.chdir(W + "/closed")
def listen(path, backlog=64, kind=socket.SOCK_STREAM):
    s = socket.socket(socket.AF_UNIX, kind); s.bind(path); s.listen(backlog); return s
own, full, ended = listen("own"), listen("full", 0), listen("ended"); ended.close()
packets = listen("packets", kind=socket.SOCK_SEQPACKET)
os.symlink("loop", "loop"); os.symlink("own", "link"); open("file", "w").close()
listen("unreachable"); os.chmod("unreachable", 0)
print("missing", connect("nothing"))
print("missing folder", connect(W + "/nowhere/x"))
print("not a folder", connect("own/x"))
print("loop", connect("loop"))
print("file", connect("file"))
print("nobody listens", connect("ended"))
print("other kind", connect("own", socket.SOCK_DGRAM))
print("no right", connect("unreachable"))
print("no right to the folder", connect("/root/x/y"))
print("own", connect("own"), connect("link"), connect("own", blocking=False))
print("packets", connect("packets", socket.SOCK_SEQPACKET))
first = connect("full", blocking=False)
print("full", first, connect("full", blocking=False))
print("too long", name(lambda: socket.socket(socket.AF_UNIX).connect("x" * 107)))
bad = socket.socket(socket.AF_UNIX); os.dup2(os.open("/dev/null", os.O_RDONLY), bad.fileno())
print("no socket", name(lambda: bad.connect("own")))
s = socket.socket(socket.AF_UNIX); s.connect("own"); print("again", name(lambda: s.connect("own")))
a, b = socket.socketpair(); socket.send_fds(a, [b"x"], [0]); print("descriptor", len(socket.recv_fds(b, 9, 1)[1]))
d = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
print("datagram to nothing", name(lambda: d.sendto(b"x", "nothing")), name(lambda: d.sendmsg([b"x"], [], 0, "own")))
t = socket.create_server(("127.0.0.1", 0)); c = socket.create_connection(t.getsockname()); print("tcp", c.sendmsg([b"x"]))
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); print("udp", u.sendto(b"x", t.getsockname()), u.sendmsg([b"x"], [], 0, t.getsockname()))
"""


def test_what_is_not_denied_ends_as_without_a_session(daemon, work, python, deny):
    import shutil
    import subprocess

    from harness import as_user

    words = python(ERRORS, work)
    bare = subprocess.run([*as_user(UID), *words], cwd=work, capture_output=True, text=True, timeout=60)
    assert bare.returncode == 0 and "own done done done" in bare.stdout, bare
    shutil.rmtree(work / "closed")
    ran = daemon.run(*words, cwd=work, options=deny)
    assert ran.out.decode().splitlines() == bare.stdout.splitlines(), ran


# A second thread rewrites the address, or what a link leads to, while the first one connects.
RACE = """
import ctypes, errno, os, socket, sys, threading
W, how, tries = sys.argv[1], sys.argv[2], int(sys.argv[3])
libc = ctypes.CDLL(None, use_errno=True)
good, evil = (W + "/open/s").encode(), (W + "/secret/s").encode()
if how == "abstract": good, evil = (b"\\0%s-%s-s" % (os.path.basename(W).encode(), part) for part in (b"free", b"host"))
if how == "family": good = b"\\0" * len(evil)
assert how == "family" or len(good) <= len(evil)
buffer = ctypes.create_string_buffer(2 + len(evil) + 1)
at = ctypes.addressof(buffer)
stop = False
def write(name, family=1):
    ctypes.memmove(at + 2, name + b"\\0" * (len(evil) - len(name)), len(evil)); ctypes.memmove(at, bytes([family, 0]), 2)
def swap():
    n = 0
    while not stop:
        n += 1
        if how == "link":
            os.symlink((good, evil)[n % 2], W + "/t"); os.rename(W + "/t", W + "/l")
        elif how == "family":
            write(evil, (2, 1)[n % 2])
        else:
            write((good, evil)[n % 2])
if how == "link":
    os.symlink(good, W + "/l"); buffer = ctypes.create_string_buffer(b"\\1\\0" + (W + "/l").encode()); at = ctypes.addressof(buffer); length = len(buffer)
else:
    write(good if how != "family" else evil); length = 2 + len(evil) + (how == "path")
    if how == "abstract": length = 2 + len(evil)
threading.Thread(target=swap, daemon=True).start()
answers = {}
for _ in range(tries):
    s = socket.socket(socket.AF_UNIX)
    r = libc.connect(s.fileno(), ctypes.c_void_p(at), length)
    e = "done" if r == 0 else errno.errorcode[ctypes.get_errno()]
    answers[e] = answers.get(e, 0) + 1
    s.close()
stop = True
print(answers)
"""


@pytest.mark.parametrize("how", ["path", "abstract", "link", "family"])
def test_a_second_thread_that_swaps_the_name_gains_nothing(daemon, work, python, server, deny, how):
    for folder in ("secret", "open"):
        (work / folder).mkdir()
        os.chown(work / folder, UID, UID)
    evil = f"\0{work.name}-host-s" if how == "abstract" else f"{work}/secret/s"
    reached = []
    listeners = {}
    for address in {evil, f"\0{work.name}-free-s", f"{work}/open/s"}:
        s = server.sockets.enter_context(socket.socket(socket.AF_UNIX))
        s.bind(address)
        server._open(address)
        s.listen(64)
        listeners[address] = s

    def serve(address):
        with contextlib.suppress(OSError):
            while True:
                listeners[address].accept()[0].close()
                reached.append(address)

    for address in listeners:
        threading.Thread(target=serve, args=(address,), daemon=True).start()
    words = python(RACE, work, how, 4000)
    ran = daemon.run(*words, cwd=work, options=deny, timeout=120)
    assert ran.status == 0, ran
    assert evil not in reached, (reached.count(evil), ran)
    print(how, ran.out.decode(), len(reached))
    for _ in range(10):  # the control: on a busy machine the other thread may not run in between
        for link in "lt":  # "t": the thread was ended between its two calls
            (work / link).unlink(missing_ok=True)
        free = daemon.run(*words, cwd=work, options=("--policy", "observe"), timeout=120)
        assert free.status == 0, free
        if evil in reached:
            break
    wait_until(lambda: evil in reached, what="the control reaches it")


OWN = """
import os, socket, sys
W, N = sys.argv[1], os.path.basename(sys.argv[1])
kept = []
for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET, socket.SOCK_DGRAM):
    for address in (f"{W}/secret/own-{kind}", f"\\0{N}-host-own-{kind}"):
        server = socket.socket(socket.AF_UNIX, kind)
        server.bind(address)
        if kind != socket.SOCK_DGRAM: server.listen(4)
        client = socket.socket(socket.AF_UNIX, kind)
        client.connect(address)
        client.send(b"x")
        if kind == socket.SOCK_DGRAM: client.sendto(b"x", address)
        kept += [server, client]
print("own")
print(len(kept), flush=True)
sys.stdin.readline()
try:
    socket.socket(socket.AF_UNIX).connect(f"{W}/secret/s")
    print("reached")
except PermissionError:
    print("denied")
"""


def test_what_a_session_serves_itself_is_its_own_and_nobody_elses(daemon, work, python, places, deny):
    words = (*python(OWN), work)
    with daemon.running(*words, cwd=work, options=deny, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as (process, name):
        assert [process.stdout.readline() for _ in range(2)] == [b"own\n", b"12\n"]
        # Another session under the same policy, and the names: these are sockets outside of it.
        code = TRY.format(act="stream(W + '/secret/own-1')"), TRY.format(act="stream('\\0' + N + '-host-own-1')")
        for text in code:
            assert daemon.run(*python(text), work, cwd=work, options=deny).out == b"EACCES\n"
        out, _ = process.communicate(b"\n", timeout=20)
        assert out == b"denied\n"
    rows = [r for r in daemon.events(name) if r["kind"] in ("unix_connect", "unix_send") and "own-" in r["path"]]
    assert rows and {r.get("verdict") for r in rows} <= {"allow", None}, rows
    assert one(select(daemon.events(name), kind="unix_connect", verdict="deny"), path=f"{work}/secret/s")["enforced"] is True


# An abstract name is another one for each type of sockets: with one of these the session's own is asked about, with the
# other somebody else's is reached. A thread puts now this, now that socket under the descriptor that connects.
TYPES = """
import os, socket, sys, threading
name = "\\0" + os.path.basename(sys.argv[1]) + "-host-s"
kinds = (socket.SOCK_DGRAM, socket.SOCK_SEQPACKET)
own = []
for kind in kinds if len(sys.argv) < 3 else ():
    s = socket.socket(socket.AF_UNIX, kind); s.bind(name); own.append(s)
    if kind != socket.SOCK_DGRAM: s.listen(64)
reached = refused = 0
def attempt(s):
    global reached, refused
    try: s.connect(name)
    except OSError: refused += 1
    else: reached += 1
for _ in range(20): attempt(socket.socket(socket.AF_UNIX))
place = socket.socket(socket.AF_UNIX)
stop = False
def swap():
    while not stop:
        for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
            with socket.socket(socket.AF_UNIX, kind) as s: os.dup2(s.fileno(), place.fileno())
thread = threading.Thread(target=swap); thread.start()
for _ in range(2000):
    try: place.connect(name)
    except OSError: refused += 1
    else: reached += place.getsockopt(socket.SOL_SOCKET, socket.SO_TYPE) == socket.SOCK_STREAM and len(sys.argv) > 2
stop = True; thread.join()
print(reached, refused)
"""


def test_an_own_name_of_another_type_opens_nothing(daemon, work, python, places, deny):
    callers = len(places.callers)
    result = daemon.run(*python(TYPES), work, cwd=work, options=deny, timeout=120)
    assert result.status == 0 and int(result.out.split()[0]) == 0, result
    assert len(places.callers) == callers  # nobody came
    control = daemon.run(*python(TYPES), work, "control", cwd=work, timeout=120)
    assert control.status == 0 and int(control.out.split()[0]) >= 20, control
    assert len(places.callers) > callers


def test_why_is_answered_inside_with_the_callers_own_role(daemon, work, python, places, deny):
    words = python(TRY.replace("{act}", "stream(W + '/secret/s')"), work)
    am = [str(daemon.bin / "agentmon"), "--socket", str(daemon.socket)]
    script = '"$@"; %s why; %s session stop --all; echo "stop $?"' % (" ".join(am), " ".join(am))
    ran = daemon.run("sh", "-c", script, "sh", *words, cwd=work, options=deny)
    assert b"no-secrets" in ran.out and b"p.yaml" in ran.out, ran
    assert b"stop 0" not in ran.out, ran


def test_aliases_are_bounded_and_gone_with_the_session(daemon, work, python, deny):
    code = """
import os, socket
for i in range(600):
    s = socket.socket(socket.AF_UNIX); s.bind("s"); s.listen(); c = socket.socket(socket.AF_UNIX); c.connect("s"); s.close(); os.unlink("s")
print(len([l for l in open("/proc/self/mountinfo") if "/unix/" in l]))
"""
    before = pathlib.Path("/proc/self/mountinfo").read_text()
    ran = daemon.run(*python(code), cwd=work, options=deny)
    assert 1 < int(ran.out) <= 256, ran
    assert pathlib.Path("/proc/self/mountinfo").read_text() == before


# Goes on trying three sockets of each kind; says each change of the answers.
TRIES = """
import errno, os, socket, sys, time
W, tcp = sys.argv[1], int(sys.argv[2])
N = os.path.basename(W)
def name(family, address):
    with socket.socket(family) as s:
        s.settimeout(9)
        try:
            s.connect(address); return "done"
        except OSError as e:
            return errno.errorcode.get(e.errno, str(e))
last = None
# Opened once: opens are judged too, and denied without a daemon.
answers, count = open(W + "/answers", "ab", 0), open(W + "/count", "ab", 0)
while True:
    now = " ".join([name(socket.AF_UNIX, W + "/secret/s"), name(socket.AF_UNIX, "\\0" + N + "-host-s"),
                    name(socket.AF_UNIX, W + "/open/s"), name(socket.AF_INET, ("127.0.0.1", tcp))])
    if now != last:
        answers.write(now.encode() + b"\\n")
    last = now
    count.write(b".")
    time.sleep(0.002)
"""


class Tries:
    def __init__(self, work):
        self.work = work

    def answers(self):
        path = self.work / "answers"
        return path.read_text().splitlines() if path.exists() else []

    def more(self, tries=20):
        count = self.work / "count"
        size = lambda: count.stat().st_size if count.exists() else 0  # noqa: E731
        enough = size() + tries
        wait_until(lambda: size() >= enough, 20, "more tries")


@pytest.fixture
def tcp(server):
    s = server.sockets.enter_context(socket.create_server(("127.0.0.1", 0)))

    def serve():
        with contextlib.suppress(OSError):
            while True:
                s.accept()[0].close()

    threading.Thread(target=serve, daemon=True).start()
    return s.getsockname()[1]


HELD = "EACCES EACCES done done"


def test_a_running_session_follows_its_policy(own_daemon, work, python, places, tcp, deny):
    tries = Tries(work)
    rule = "unix_socket_rules: [{name: other, paths: ['/nowhere'], decision: deny}]\n"
    options = policy(work, rule, name="loose.yaml")
    with own_daemon.running(*python(TRIES, work, tcp), cwd=work, options=options) as (_, name):
        tries.more()
        assert tries.answers() == ["done done done done"]
        set_policy = ("session", "set-policy", name, "--policy")
        assert own_daemon.am(*set_policy, str(work / "p.yaml"), uid=UID).status == 0
        wait_until(lambda: tries.answers()[-1] == HELD, what="the rules hold")
        tries.more()
        assert own_daemon.am(*set_policy, "observe", uid=UID).status == 0
        wait_until(lambda: tries.answers()[-1] == "done done done done", what="the rules are gone")
        rules = f"version: 1\nname: company\nposture: enforce\n{RULES % (work, work.name)}"
        (own_daemon.floor / "10.yaml").write_text(rules)
        assert own_daemon.am("policy", "reload").status == 0
        wait_until(lambda: tries.answers()[-1] == HELD, what="the floor holds")
        rows = own_daemon.timeline(session=name)
        assert {r["rule"] for r in select(rows, kind="unix_connect", enforced=True)} == {"no-secrets"}


def test_a_session_that_began_without_such_rules_says_that_later_ones_are_not_enforced(daemon, work, deny):
    with daemon.running("sleep", "60", cwd=work, options=policy(work, name="none.yaml")) as (_, name):
        extra = "enforcement: best_effort\n"
        policy(work, RULES % (work, work.name), extra=extra)
        assert daemon.am("session", "set-policy", name, "--policy", str(work / "p.yaml"), uid=UID).status == 0
        listed = {r["rule"]: r for r in daemon.session(name)["policy"]["rules"]}
        assert listed["no-secrets"]["enforced"] == "observed", listed["no-secrets"]


@pytest.mark.parametrize("sig", [signal.SIGKILL, signal.SIGTERM])
def test_without_a_daemon_what_nobody_judges_is_refused_and_tcp_goes_on(own_daemon, work, python, places, tcp, deny, sig):
    tries = Tries(work)
    with own_daemon.running(*python(TRIES, work, tcp), cwd=work, options=deny) as (_, name):
        tries.more()
        assert tries.answers() == [HELD]
        own_daemon.stop(sig)
        wait_until(lambda: tries.answers()[-1] == "EACCES EACCES EACCES done", 20, "the holder answers")
        tries.more()
        own_daemon.start()
        wait_until(lambda: tries.answers()[-1] == HELD, 20, "the next daemon answers")
        tries.more()
        assert all(a.startswith("EACCES EACCES") and a.endswith("done") for a in tries.answers()), tries.answers()
        control = one([{**c, "control": c.get("control")} for c in own_daemon.session(name)["controls"]], control="unix")
        assert control["active"], control


def test_outside_of_sessions_nothing_is_denied(daemon, work, places, deny):
    with daemon.running("sleep", "60", cwd=work, options=deny):
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(f"{work}/secret/s")
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(f"\0{work.name}-host-s")
