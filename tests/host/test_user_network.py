"""What a policy denies on the network below agentmond --user, as programs see it and as it is stored."""
import contextlib
import errno
import json
import os
import pathlib
import socket
import subprocess
import threading
import time

import pytest

from harness import one, select, wait_until
from test_user_daemon import ALLOW, HEAD, own, policy, shared  # noqa: F401  fixtures, too

NOT_THREE = "network_rules: [{name: not-three, cidrs: [127.0.0.3], decision: deny, message: 'not {{.RemoteAddr}}'}]\n"
ONLY_TWO = f"version: 1\nname: p\nposture: enforce\n{ALLOW.replace('network: allow', 'network: deny')}"
ONLY_TWO += "network_rules: [{name: only-two, cidrs: [127.0.0.2], decision: allow}]\n"
CONNECT = {"x86_64": 42, "aarch64": 203}[os.uname().machine]  # its number

# Prints "done", or the errno's name.
TRY = """
import errno, os, socket, struct, sys, threading
address, port = sys.argv[1], int(sys.argv[2])
def new(kind=socket.SOCK_STREAM):
    s = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, kind)
    s.settimeout(5)
    return s
def blocking(kind=socket.SOCK_STREAM):
    s = new(kind)
    s.settimeout(None)
    return s
try:
    {act}
    print("done")
except OSError as e:
    print(errno.errorcode[e.errno])
"""
IN_THREAD = """
out = []
    t = threading.Thread(target=lambda: out.append(blocking().connect_ex((address, port)))); t.start(); t.join()
    if out[0]: raise OSError(out[0], '')
""".strip()

# name: (what is done, kind of the row, protocol)
ACTS = {
    "connect": ("blocking().connect((address, port))", "connect", "tcp"),
    "non-blocking": ("new().connect((address, port))", "connect", "tcp"),
    "in a thread": (IN_THREAD, "connect", "tcp"),
    "in a child": ("p = os.fork()\n    if not p: os._exit(blocking().connect_ex((address, port)))\n"
                   "    e = os.waitstatus_to_exitcode(os.waitpid(p, 0)[1])\n    if e: raise OSError(e, '')", "connect", "tcp"),
    "sendto": ("blocking(socket.SOCK_DGRAM).sendto(b'x', (address, port))", "send", "udp"),
    "sendmsg": ("blocking(socket.SOCK_DGRAM).sendmsg([b'x', b'y'], [], 0, (address, port))", "send", "udp"),
    "connected datagrams": ("s = blocking(socket.SOCK_DGRAM); s.connect((address, port)); s.sendmsg([b'x'])", "connect", "udp"),
    "fast open": ("blocking().sendto(b'x', socket.MSG_FASTOPEN, (address, port))", "connect", "tcp"),
    "fast open by sendmsg": ("blocking().sendmsg([b'x'], [], socket.MSG_FASTOPEN, (address, port))", "connect", "tcp"),
}


class Server:
    """TCP and UDP on one port of each address, outside of every session."""

    def __init__(self, *addresses):
        self.reached = 0
        while True:  # a port that is free on all of them
            self.port, self.sockets = 0, []
            try:
                for address in addresses:
                    self.bind(address)
                break
            except OSError as error:
                self.close()
                if error.errno != errno.EADDRINUSE:
                    raise
        for tcp in self.sockets[::2]:
            threading.Thread(target=self.serve, args=(tcp,), daemon=True).start()

    def bind(self, address):
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self.sockets.append(socket.create_server((address, self.port), family=family, backlog=512))
        self.port = self.sockets[-1].getsockname()[1]
        self.sockets.append(socket.socket(family, socket.SOCK_DGRAM))
        self.sockets[-1].bind((address, self.port))

    def serve(self, tcp):
        with contextlib.suppress(OSError):
            while True:
                tcp.accept()[0].close()
                self.reached += 1

    def datagram(self, which=0):
        udp = self.sockets[2 * which + 1]
        udp.settimeout(5)
        return udp.recv(70000)

    def close(self):
        for s in self.sockets:
            with contextlib.suppress(OSError):
                s.shutdown(socket.SHUT_RDWR)
            s.close()


@pytest.fixture
def server():
    with contextlib.ExitStack() as stack:
        def listen(*addresses):
            made = Server(*addresses)
            stack.callback(made.close)
            return made

        yield listen


@pytest.fixture
def full():
    """The port of 127.0.0.2 whose backlog is full: a connect to it waits."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.2", 0), backlog=0))
        for _ in range(4):
            s = stack.enter_context(socket.socket())
            s.setblocking(False)
            s.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]


counter = iter(range(10000))


def run(daemon, words, options=(), **rest):
    """The output, and the rows of the session."""
    name = f"net{next(counter)}"
    result = daemon.run(name, *words, options=options, **rest)
    return result.out.decode().split(), daemon.ended(name), result


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("address", ["127.0.0.3", "::ffff:127.0.0.3"])
def test_a_denied_destination_is_not_reached(shared, work, python, server, act, address):
    code, kind, protocol = ACTS[act]
    port = server("127.0.0.2", "127.0.0.3").port
    denies = policy(work, HEAD + NOT_THREE)
    out, rows, result = run(shared, python(TRY.format(act=code), address, port), denies)
    assert out == ["EPERM"], result
    row = one(select(rows, enforced=True), kind=kind)
    assert (row["rule"], row["mechanism"], row["errno_name"], row["protocol"]) == ("not-three", "seccomp", "EPERM", protocol), row
    assert (row["address"], row["port"], row["verdict"], row["message"]) == ("127.0.0.3", port, "deny", "not 127.0.0.3"), row
    assert row["rule_file"].endswith("p.yaml") and row["rule_line"] > 0, row
    # The controls: another address, and the same without the rule.
    other = address.replace("127.0.0.3", "127.0.0.2")
    out, rows, result = run(shared, python(TRY.format(act=code), other, port), denies)
    assert out == ["done"], result
    row = one(rows, kind=kind)
    assert (row["address"], row["port"], row["verdict"]) == ("127.0.0.2", port, "allow"), row
    out, rows, result = run(shared, python(TRY.format(act=code), address, port))
    assert out == ["done"] and not select(rows, enforced=True), result
    if act in ("sendmsg", "fast open by sendmsg"):
        return  # is not asked about where nothing is stopped
    row = one(rows, kind=kind)
    assert (row["address"], row["port"], row["protocol"]) == ("127.0.0.3", port, protocol), row


@pytest.mark.parametrize("address", ["127.0.0.3", "0.0.0.0", "::1", "::", "::ffff:7f00:3"])
def test_what_is_not_allowed_is_denied_in_every_spelling(shared, work, python, server, address):
    port = server("127.0.0.1", "127.0.0.2", "127.0.0.3", "::1").port
    script = TRY.format(act=ACTS["connect"][0])
    out, rows, result = run(shared, python(script, address, port), policy(work, ONLY_TWO))
    assert out == ["EPERM"] and one(select(rows, enforced=True), kind="connect")["rule"] == "default for network", result
    assert run(shared, python(script, "127.0.0.2", port), policy(work, ONLY_TWO))[0] == ["done"]
    assert run(shared, python(script, address, port))[0] == ["done"]


def test_ports_and_protocols_are_told_apart(shared, work, python, server):
    port = server("127.0.0.2").port
    rules = ONLY_TWO.replace("cidrs: [127.0.0.2]", f"cidrs: [127.0.0.2], ports: ['{port}-{port}'], protocol: udp")
    tries = [(ACTS["connect"][0], port, "EPERM"), (ACTS["sendto"][0], port, "done"), (ACTS["sendto"][0], port - 1, "EPERM")]
    for act, to, expected in tries:
        assert run(shared, python(TRY.format(act=act), "127.0.0.2", to), policy(work, rules))[0] == [expected], (act, to)


def test_the_control_is_proven_and_the_rules_are_listed(shared, work):
    with shared.running("proven", "sleep", "60", options=policy(work, HEAD + NOT_THREE)):
        session = shared.session("proven")
        control = one([{**c, "control": c["control"]} for c in session["controls"]], control="network_calls")
        assert control["active"] and control["mechanism"] == "seccomp", control
        rule = one(session["policy"]["rules"], rule="not-three")
        assert (rule["enforced"], rule["mechanism"]) == ("kernel", "seccomp"), rule
    assert not select(shared.ended("proven"), kind="connect")  # what the shim tried is no doing of the agent's


def test_rules_on_names_are_refused_as_before(shared, work):
    rule = "network_rules: [{name: by-name, domains: [example.com], decision: deny}]\n"
    refused = shared.run("names", "true", options=policy(work, HEAD + rule))
    assert refused.status == 125 and b"by-name" in refused.err, refused


def test_real_programs(shared, work, server):
    port = server("127.0.0.3").port
    curl = ["curl", "-s", "-o", "/dev/null", "--noproxy", "*", "-m", "10", f"http://127.0.0.3:{port}/"]
    denied = run(shared, curl, policy(work, HEAD + NOT_THREE))
    assert denied[2].status == 7, denied[2]  # could not connect
    one(select(denied[1], enforced=True), kind="connect")
    assert run(shared, curl, policy(work, HEAD))[2].status in (52, 56)  # it came there, and got no reply


MMSG = r"""
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
int main(int argc, char **argv) {
  int s = socket(AF_INET, SOCK_DGRAM, 0);
  struct sockaddr_in to[8] = {0};
  struct mmsghdr all[8] = {0};
  struct iovec io = {"hello", 5};
  for (int i = 2; i < argc; ++i) {
    to[i].sin_family = AF_INET;
    to[i].sin_port = htons(atoi(argv[1]));
    inet_pton(AF_INET, argv[i], &to[i].sin_addr);
    all[i - 2].msg_hdr = (struct msghdr){&to[i], sizeof(to[i]), &io, 1};
  }
  int n = sendmmsg(s, all, argc - 2, 0);
  printf("%d %s", n, n < 0 ? strerrorname_np(errno) : "-");
  for (int i = 0; i < n; ++i) printf(" %u", all[i].msg_len);
}
"""


def test_of_many_messages_those_before_the_denied_one_are_sent(shared, work, cc, server):
    here = server("127.0.0.2", "127.0.0.3")
    program = cc("mmsg", MMSG)
    denies = policy(work, HEAD + NOT_THREE)
    out, rows, _ = run(shared, [program, str(here.port), "127.0.0.2", "127.0.0.2", "127.0.0.3"], denies)
    assert out == ["2", "-", "5", "5"] and here.datagram() == here.datagram() == b"hello"
    assert one(select(rows, enforced=True), kind="send")["address"] == "127.0.0.3"
    assert run(shared, [program, str(here.port), "127.0.0.3"], denies)[0] == ["-1", "EPERM"]
    assert run(shared, [program, str(here.port), "127.0.0.2", "127.0.0.3"])[0] == ["2", "-", "5", "5"]  # the control
    assert here.datagram(1) == b"hello"


def test_payloads_flags_and_control_data_are_carried_over(shared, work, python, server):
    here = server("127.0.0.2")
    code = """
import errno, socket, sys
to = ("127.0.0.2", int(sys.argv[1]))
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
print(s.sendto(b"a" * 60000, to), s.sendmsg([b"b" * 1000, b"c" * 1000], [(socket.IPPROTO_IP, 1, (7).to_bytes(4, "little"))], 0, to))
for size in (65600, 1 << 20):
    try:
        s.sendto(b"x" * size, to)
    except OSError as e:
        print(errno.errorcode[e.errno])
t = socket.create_connection(to)
try:
    while True: t.sendmsg([b"y" * 100000], [], socket.MSG_NOSIGNAL)
except OSError as e:
    print(errno.errorcode[e.errno])
"""
    expected = run(shared, python(code, here.port))[0]
    assert here.datagram() == b"a" * 60000 and here.datagram() == b"b" * 1000 + b"c" * 1000
    out = run(shared, python(code, here.port), policy(work, HEAD + NOT_THREE))[0]
    assert here.datagram() == b"a" * 60000 and here.datagram() == b"b" * 1000 + b"c" * 1000
    assert out[:4] == expected[:4] == ["60000", "2000", "EMSGSIZE", "EMSGSIZE"]
    assert out[4] in ("EPIPE", "ECONNRESET") and expected[4] in ("EPIPE", "ECONNRESET")


ERRORS = """
import errno, os, signal, socket, struct, sys
port = int(sys.argv[1])
def told(what):
    try:
        return str(what())
    except OSError as e:
        return errno.errorcode[e.errno]
to = ("127.0.0.2", port)
s = socket.socket()
n = socket.socket(); n.setblocking(False)
closed = socket.socket(); closed.bind(("127.0.0.2", 0))
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
class Raw:
    pass
print(told(lambda: s.connect(to)), told(lambda: s.connect(to)), told(lambda: s.sendto(b"x", to)),
      told(lambda: socket.socket().connect(closed.getsockname())), told(lambda: n.connect_ex(to)),
      told(lambda: u.connect(to)), told(lambda: u.send(b"x")),
      told(lambda: u.sendto(b"x", ("127.0.0.2", 0))))
r, w = os.pipe()
print(told(lambda: socket.socket(fileno=os.dup(0)).connect(to)))
"""


def test_errors_are_the_kernels(shared, work, python, server):
    port = server("127.0.0.2").port
    free, _, _ = run(shared, python(ERRORS, port))
    judged, _, result = run(shared, python(ERRORS, port), policy(work, HEAD + NOT_THREE))
    assert judged == free and "ECONNREFUSED" in free and "EISCONN" in free, (free, result)


def test_a_disconnect_is_no_connect(shared, work, cc, server):
    port = server("127.0.0.2").port
    program = cc("unspec", r"""
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
int main(int argc, char **argv) {
  struct sockaddr_in to = {AF_INET, htons(atoi(argv[1]))};
  struct sockaddr none = {AF_UNSPEC};
  inet_pton(AF_INET, "127.0.0.2", &to.sin_addr);
  int s = socket(AF_INET, SOCK_DGRAM, 0);
  printf("%d", connect(s, (void *)&to, sizeof(to)));
  printf(" %d", connect(s, &none, sizeof(none)));
  to.sin_family = AF_UNSPEC;  /* a datagram is sent all the same */
  inet_pton(AF_INET, "127.0.0.3", &to.sin_addr);
  printf(" %d", (int)sendto(s, "x", 1, 0, (void *)&to, sizeof(to)));
}
""")
    out, rows, _ = run(shared, [program, str(port)], policy(work, HEAD + NOT_THREE))
    assert out == ["0", "0", "-1"] and one(select(rows, enforced=True), kind="send")["address"] == "127.0.0.3"
    assert run(shared, [program, str(port)])[0] == ["0", "0", "1"]


ALARM = """
import errno, signal, socket, struct, sys, time
restart = sys.argv[2] == "restart"
s = socket.socket()
if sys.argv[2] == "timeout":
    s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 0, 300000))
hits = []
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
handler = ctypes.CFUNCTYPE(None, ctypes.c_int)(lambda n: hits.append(n))
class Action(ctypes.Structure):
    _fields_ = [("handler", ctypes.c_void_p), ("mask", ctypes.c_byte * 128), ("flags", ctypes.c_int), ("restorer", ctypes.c_void_p)]
action = Action(ctypes.cast(handler, ctypes.c_void_p), (ctypes.c_byte * 128)(), 0x10000000 if restart else 0, None)
libc.sigaction(signal.SIGALRM, ctypes.byref(action), None)
if sys.argv[2] != "timeout":
    signal.setitimer(signal.ITIMER_REAL, 0.3, 0.3 if restart else 0)
address = struct.pack("!BBHBBBBQ", 2, 0, int(sys.argv[1]), 127, 0, 0, 2, 0)
if restart:
    s.setsockopt(socket.IPPROTO_TCP, 18, 1000)  # TCP_USER_TIMEOUT: it ends by itself
r = libc.connect(s.fileno(), address, 16)
print(r, errno.errorcode[ctypes.get_errno()], len(hits) > (1 if restart else 0) if sys.argv[2] != "timeout" else "-")
"""


@pytest.mark.parametrize("how, expected", [("alarm", ["-1", "EINTR", "True"]), ("restart", ["-1", "ETIMEDOUT", "True"]),
                                           ("timeout", ["-1", "EINPROGRESS", "-"])])
def test_a_connect_that_waits_is_interrupted_as_bare(shared, work, python, full, how, expected):
    words = python(ALARM, full, how)
    assert run(shared, words)[0] == expected
    out, rows, result = run(shared, words, policy(work, HEAD + NOT_THREE))
    assert out == expected, result
    assert select(rows, kind="connect", port=full)


def threads_and_descriptors(daemon):
    task = pathlib.Path(f"/proc/{daemon.process.pid}")
    return len(os.listdir(task / "task")), len(os.listdir(task / "fd"))


def connecting(daemon):
    count = 0
    for task in pathlib.Path(f"/proc/{daemon.process.pid}/task").iterdir():
        with contextlib.suppress(OSError):
            count += (task / "syscall").read_text().split()[0] == str(CONNECT)
    return count


BLOCKED = """
import os, socket, sys, threading, time
def wait():
    try:
        socket.socket().connect(("127.0.0.2", int(sys.argv[1])))
    except OSError:
        pass
for _ in range(int(sys.argv[2])):
    threading.Thread(target=wait, daemon=True).start()
open("ready", "w").close()
time.sleep(60)
"""


def test_connects_that_wait_hold_up_nobody_and_leave_nothing(own, work, python, server, full):
    port = server("127.0.0.2").port
    denies = policy(work, HEAD + NOT_THREE)
    run(own, python(TRY.format(act=ACTS["connect"][0]), "127.0.0.2", port), denies)
    wait_until(lambda: own.session("none") is None, what="warm")
    before = threads_and_descriptors(own)
    with own.running("blocked", *python(BLOCKED, full, 32), options=denies, cwd=work) as process:
        wait_until((work / "ready").exists, 20, "they wait")
        wait_until(lambda: connecting(own) == 32, 20, "32 calls are being made")
        start = time.monotonic()
        assert run(own, python(TRY.format(act=ACTS["connect"][0]), "127.0.0.2", port), denies)[0] == ["done"]
        assert time.monotonic() - start < 10
        assert own.am("session", "stop", "blocked").status == 0
        process.wait(10)
    def back():
        threads, descriptors = threads_and_descriptors(own)
        return threads <= before[0] + 2 and descriptors <= before[1] + 2
    wait_until(lambda: connecting(own) == 0, 10, "no call is being made")
    wait_until(back, 20, f"threads and descriptors are back at {before}")


RACE = r"""
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
static struct sockaddr_in to;
static struct in_addr good, bad;
static int swap_fd = -1, inet_fd = -1, unix_fd = -1;
static void *flip(void *arg) {
  for (;;) {
    __atomic_store_n(&to.sin_addr.s_addr, bad.s_addr, __ATOMIC_SEQ_CST);
    if (swap_fd >= 0) dup2(inet_fd, swap_fd);
    __atomic_store_n(&to.sin_addr.s_addr, good.s_addr, __ATOMIC_SEQ_CST);
    if (swap_fd >= 0) dup2(unix_fd, swap_fd);
  }
}
int main(int argc, char **argv) {
  int tries = atoi(argv[2]), done = 0, kind = argv[3][0] == 'd' ? SOCK_DGRAM : SOCK_STREAM;
  to.sin_family = AF_INET;
  to.sin_port = htons(atoi(argv[1]));
  inet_pton(AF_INET, "127.0.0.2", &good);
  inet_pton(AF_INET, "127.0.0.3", &bad);
  to.sin_addr = good;
  if (argv[3][0] == 'n') { /* the number of a unix socket comes to mean an inet socket */
    good = bad;
    unix_fd = socket(AF_UNIX, SOCK_STREAM, 0);
    inet_fd = socket(AF_INET, SOCK_STREAM, 0);
    swap_fd = dup(unix_fd);
  }
  pthread_t thread;
  pthread_create(&thread, 0, flip, 0);
  for (int i = 0; i < tries; ++i) {
    struct iovec io = {"x", 1};
    struct msghdr head = {&to, sizeof(to), &io, 1};
    if (swap_fd >= 0) {
      done += connect(swap_fd, (void *)&to, sizeof(to)) == 0;
      if (i % 64 == 63) { int s = socket(AF_INET, SOCK_STREAM, 0); dup2(s, inet_fd); close(s); }
      continue;
    }
    int s = socket(AF_INET, kind, 0);
    done += (kind == SOCK_DGRAM ? sendmsg(s, &head, 0) : connect(s, (void *)&to, sizeof(to))) >= 0;
    close(s);
  }
  printf("%d", done);
  fflush(stdout);
  _exit(0);
}
"""


@pytest.mark.parametrize("what", ["connect", "datagram", "number"])
def test_an_address_that_is_rewritten_meanwhile_never_leads_to_a_denied_server(shared, work, cc, server, what):
    here = server("127.0.0.2")
    program = cc("race", RACE)
    denied = socket.create_server(("127.0.0.3", here.port), backlog=4096)
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.bind(("127.0.0.3", here.port))
    with denied, udp:
        def reached():
            count = 0
            s = udp if what == "datagram" else denied
            s.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                while True:
                    if what == "datagram":
                        s.recv(10)
                    else:
                        s.accept()[0].close()
                    count += 1
            return count

        out, rows, result = run(shared, [program, str(here.port), "2000", what], policy(work, HEAD + NOT_THREE), timeout=120)
        assert result.status == 0 and reached() == 0, result
        assert select(rows, enforced=True, rule="not-three")
        if what != "number":
            assert int(out[0]) > 0
        for _ in range(10):  # the control: how often it gets there depends on the machine
            run(shared, [program, str(here.port), "2000", what], timeout=120)
            if reached() > 0:
                break
        else:
            raise AssertionError("nothing is raced without a judge")


def test_a_storm_of_forks_is_judged_one_by_one(shared, work, python, server):
    port = server("127.0.0.2", "127.0.0.3").port
    code = """
import os, socket, sys
def child(i):
    s = socket.socket(); s.setblocking(True)
    return s.connect_ex(("127.0.0.%d" % (2 + i % 2), int(sys.argv[1])))
pids = []
for i in range(100):
    p = os.fork()
    if p == 0: os._exit(child(i))
    pids.append(p)
print(*sorted(os.waitstatus_to_exitcode(os.waitpid(p, 0)[1]) for p in pids))
"""
    out, rows, result = run(shared, python(code, port), policy(work, HEAD + NOT_THREE))
    assert out == ["0"] * 50 + ["1"] * 50, result
    assert sum(r.get("count", 1) for r in select(rows, kind="connect", enforced=True)) == 50
    assert run(shared, python(code, port))[0] == ["0"] * 100


LOOP = """
import errno, os, socket, sys, time
while not os.path.exists("stop"):
    s = socket.socket()
    e = s.connect_ex((sys.argv[1], int(sys.argv[2])))
    s.close()
    with open("last", "w") as f: f.write(errno.errorcode.get(e, "done"))
    time.sleep(0.02)
"""


def last(work):
    with contextlib.suppress(FileNotFoundError):
        return (work / "last").read_text()


# What is open already goes on being written: file changes are denied, too, while nobody is there.
QUIET_LOOP = LOOP.replace('with open("last", "w") as f: f.write(', 'os.pwrite(f, (').replace(', "done"))', ', "done") + "   ").encode(), 0)').replace(
    "while not", "f = os.open('last', os.O_RDWR | os.O_CREAT)\nwhile not")


def test_without_a_daemon_what_is_judged_is_denied_and_what_is_not_goes_on(own, work, python, server):
    port = server("127.0.0.2").port
    for name, options, expected in (("judged", policy(work, HEAD + NOT_THREE), "EPERM"), ("free", (), "done")):
        with own.running(name, *python(QUIET_LOOP, "127.0.0.2", port), options=options, cwd=work) as process:
            wait_until(lambda: (last(work) or "").strip() == "done", 15, "it connects")
            own.kill()
            (work / "last").write_text("none      ")
            wait_until(lambda: (last(work) or "").split()[:1] == [expected], 30, f"{expected} without a daemon: {last(work)}")
            own.start()
            wait_until(lambda: (last(work) or "").strip() == "done", 15, "it connects with the next")
            (work / "stop").write_text("")
            assert process.wait(15) == 0
        (work / "stop").unlink()
        (work / "last").unlink()


def test_another_policy_holds_at_once(shared, work, python, server):
    port = server("127.0.0.3").port
    with shared.running("switched", *python(LOOP, "127.0.0.3", port), options=policy(work, HEAD), cwd=work) as process:
        wait_until(lambda: last(work) == "done", 15, "it connects")
        options = policy(work, HEAD + NOT_THREE)
        assert shared.am("session", "set-policy", "switched", *options[:2]).status == 0
        wait_until(lambda: last(work) == "EPERM", 15, "it is denied")
        assert shared.am("session", "set-policy", "switched", *policy(work, HEAD)[:2]).status == 0
        wait_until(lambda: last(work) == "done", 15, "it connects again")
        (work / "stop").write_text("")
        assert process.wait(15) == 0
    assert select(shared.ended("switched"), kind="connect", enforced=True, rule="not-three")


def test_what_would_get_past_the_judge_is_refused(shared, work, cc):
    program = cc("past", r"""
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <signal.h>
#include <sys/wait.h>
static const char *of(long r) { return r < 0 ? strerrorname_np(errno) : "done"; }
int main() {
  char route[4] = {7, 3, 4, 0}; /* record route */
  int s = socket(AF_INET, SOCK_DGRAM, 0);
  printf("%s", of(setsockopt(s, IPPROTO_IP, 4, route, 4)));
  printf(" %s", of(socket(AF_INET, SOCK_RAW, IPPROTO_ICMP)));
  printf(" %s", of(socket(AF_PACKET, SOCK_DGRAM, 0)));
  printf(" %s", of(setsockopt(s, SOL_SOCKET, SO_BINDTODEVICE, "lo", 3)));
  char control[CMSG_SPACE(sizeof(struct in_pktinfo))] = {0};
  struct sockaddr_in to = {AF_INET, htons(9), {htonl(0x7f000002)}};
  struct msghdr head = {&to, sizeof(to), 0, 0, control, sizeof(control)};
  struct cmsghdr *part = CMSG_FIRSTHDR(&head);
  *part = (struct cmsghdr){CMSG_LEN(sizeof(struct in_pktinfo)), IPPROTO_IP, IP_PKTINFO};
  ((struct in_pktinfo *)CMSG_DATA(part))->ipi_ifindex = 1; /* lo */
  printf(" %s", of(sendmsg(s, &head, 0)));
  fflush(stdout);
  long p = syscall(SYS_clone, CLONE_FILES | SIGCHLD, 0, 0, 0, 0);
  if (p == 0) _exit(0);
  if (p > 0) waitpid(p, 0, 0);
  printf(" %s", of(p));
}
""")
    assert run(shared, [program], policy(work, HEAD + NOT_THREE))[0] == ["EPERM"] * 6
    free = run(shared, [program])[0]
    assert [free[0], *free[3:]] == ["done"] * 4, free


def test_unix_sockets_go_on_also_in_threads(shared, work, python):
    code = """
import array, os, socket, threading
def work():
    l = socket.socket(socket.AF_UNIX); l.bind(name); l.listen()
    c = socket.socket(socket.AF_UNIX); c.connect(name); a = l.accept()[0]
    r, w = os.pipe()
    c.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [w]))])
    data, control, _, _ = a.recvmsg(10, 100)
    os.write(array.array("i", control[0][2][:4])[0], b"y")
    out.append(os.read(r, 1))
    d = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); d.bind(name + "d")
    socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b"z", os.path.abspath(name + "d"))
    out.append(d.recv(10))
out = []
name = "one"; work()
name = "two"; t = threading.Thread(target=work); t.start(); t.join()
print(*[o.decode() for o in out])
import socket as s
n = s.socket(s.AF_NETLINK, s.SOCK_RAW, 0); print(n.sendto(b"\\0" * 16, (0, 0)))
"""
    out, _, result = run(shared, python(code), policy(work, HEAD + NOT_THREE), cwd=work)
    assert out == ["y", "z", "y", "z", "16"], result


def test_a_thread_of_a_session_is_no_user_of_the_daemon(shared, work, python):
    """Its connect is made by the daemon: that must not make it one of the user's own programs."""
    code = """
import socket, sys, threading
out = []
def go():
    s = socket.socket(socket.AF_UNIX); s.settimeout(10); s.connect(sys.argv[1])
    try:
        out.append(s.recv(1))
    except OSError as e:
        out.append(type(e).__name__)
t = threading.Thread(target=go); t.start(); t.join()
print(out)
"""
    out, _, result = run(shared, python(code, shared.socket), policy(work, HEAD + NOT_THREE))
    assert out in (["[b'']"], ["['ConnectionResetError']"]), result


def test_a_thread_with_descriptors_of_its_own_is_judged_by_these(shared, work, cc, server):
    here = server("127.0.0.2", "127.0.0.3")
    program = cc("unshared", r"""
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
static int port, s;
static void try(const char *address) {
  struct sockaddr_in to = {AF_INET, htons(port)};
  inet_pton(AF_INET, address, &to.sin_addr);
  printf("%s ", connect(s, (void *)&to, sizeof(to)) ? strerrorname_np(errno) : "done");
}
static void *own(void *arg) {
  if (unshare(CLONE_FILES)) return 0;
  int other = socket(AF_INET, SOCK_STREAM, 0);
  dup2(other, s); /* in this thread the number means another socket */
  try("127.0.0.2");
  dup2(socket(AF_INET, SOCK_STREAM, 0), s);
  try("127.0.0.3");
}
int main(int argc, char **argv) {
  port = atoi(argv[1]);
  s = socket(AF_UNIX, SOCK_STREAM, 0);
  pthread_t t;
  pthread_create(&t, 0, own, 0);
  pthread_join(t, 0);
  try("127.0.0.2");
}
""")
    out, rows, result = run(shared, [program, str(here.port)], policy(work, HEAD + NOT_THREE))
    # Before Linux 6.9 such a thread's sockets cannot be taken.
    assert out[1] == "EPERM" and out[2] == "EINVAL" and out[0] in ("done", "EPERM"), result
    assert run(shared, [program, str(here.port)])[0] == ["done", "done", "EINVAL"]  # the control


def test_a_connect_that_waits_for_a_daemon_that_dies_is_denied(own, work, python, full):
    code = """
import errno, os, socket, sys
f = os.open("last", os.O_RDWR | os.O_CREAT)
os.pwrite(f, b"waits ", 0)
e = socket.socket().connect_ex(("127.0.0.2", int(sys.argv[1])))
os.pwrite(f, errno.errorcode[e].encode(), 0)
"""
    with own.running("waits", *python(code, full), options=policy(work, HEAD + NOT_THREE), cwd=work):
        wait_until(lambda: connecting(own) == 1, 20, "it waits")
        own.kill()
        wait_until(lambda: (last(work) or "").startswith("EPERM"), 30, f"it is denied: {last(work)}")
        own.start()


def test_a_caller_that_is_killed_leaves_nothing(shared, work, python, full):
    code = """
import os, signal, socket, sys
pids = []
for i in range(8):
    p = os.fork()
    if p == 0:
        socket.socket().connect(("127.0.0.2", int(sys.argv[1])))
        os._exit(0)
    pids.append(p)
sys.stdin.read()
for p in pids:
    os.kill(p, signal.SIGKILL)
print(*(os.waitpid(p, 0)[1] for p in pids))
"""
    reads, writes = os.pipe()
    words = shared.words("run", "--user", "--name", "killed", *policy(work, HEAD + NOT_THREE), "--", *python(code, full))
    with subprocess.Popen(words, env=shared.env(), stdin=reads, stdout=subprocess.PIPE) as process:
        os.close(reads)
        wait_until(lambda: connecting(shared) == 8, 20, "they wait")
        os.close(writes)
        out, _ = process.communicate(timeout=20)
    assert out.split() == [b"9"] * 8
    wait_until(lambda: connecting(shared) == 0, 10, "no call is being made")


def test_a_client_inside_of_a_judged_session_is_an_agent(shared, work):
    agentmon = str(shared.bin / "agentmon")
    denies = policy(work, HEAD + NOT_THREE)
    shown = shared.run("inside-judged", agentmon, "session", "show", "--user", "--json", options=denies)
    assert shown.status == 0 and json.loads(shown.out)["name"] == "inside-judged", shown
    nested = shared.run("inside-judged2", agentmon, "run", "--user", "--", "true", options=denies)
    assert nested.status == 125 and b"inside a session" in nested.err, nested


def test_names_are_looked_up_as_bare(shared, work, python):
    code = """
import socket
for name in ("localhost", "127.0.0.2", "no-such-name.invalid"):
    try:
        print(sorted({a[4][0] for a in socket.getaddrinfo(name, 80)})[-1])
    except OSError as e:
        print(e.errno)
"""
    free = run(shared, python(code))[0]
    assert run(shared, python(code), policy(work, HEAD + NOT_THREE))[0] == free and free[1] == "127.0.0.2"
