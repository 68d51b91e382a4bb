# shellcheck shell=bash
# What the kernel stops by itself where BPF is among the security modules. Each act has its control: the same on a file
# that no rule is about.

LSM_POLICY=/home/dev/lsm.yaml
lsm_policy() { # ENFORCEMENT DIRECTORY [EXTRA]
  cat >"$LSM_POLICY" <<END
version: 1
name: lsm
enforcement: $1
defaults: {file_write: allow, command: allow, network: allow, unix_socket: allow, signal: allow}
file_rules:
  - name: closed
    paths: ["$2/closed/**", "$2/alone"]
    decision: deny
${3:-}
END
  chmod 644 "$LSM_POLICY"
}
# By the names of the programs: systemd 257 has some of its own.
is_attached() {
  bpftool prog list | sed -n 's/^\([0-9]*\): lsm  *name on_.*/\1/p' >ours
  bpftool link show | sed -n 's/^[0-9]*: tracing  *prog \([0-9]*\).*/\1/p' | has -xFf ours
}
pins() { find /sys/fs/bpf/agentmon -name 'on_*' 2>/dev/null | wc -l; }
# by_lsm SESSION PATH RULE [KIND]: a stored denial by the kernel, enforced, with its errno.
by_lsm() {
  agentmon timeline --session "$1" --enforced yes --format json | grep -F "\"$2\"" | tee found.json | head -n 3
  grep '"mechanism":"bpf_lsm"' found.json | grep "\"rule\":\"$3\"" | has '"error":13\|EACCES'
}

test_lsm_programs_stop_reads_and_say_by_which_rule() {  # main, debian13
  wait_for 60 responds
  agentmon status | tee status.txt
  grep -i 'lsm' status.txt
  # shellcheck disable=SC2016
  as_dev sh -c 'rm -rf ~/lsm; mkdir -p ~/lsm/closed/deep ~/lsm/open; cd ~/lsm; for f in closed/f closed/deep/f alone open/f; do echo TEXT >$f; done'
  lsm_policy required /home/dev/lsm
  cat >/run/vm/reads.sh <<'END'
cd ~/lsm || exit 1
for f in closed/f closed/deep/f alone open/f; do cat $f && echo "READ $f"; done
true
END
  as_dev env LC_ALL=C agentmon run --name lsm-reads --policy "$LSM_POLICY" -- sh /run/vm/reads.sh >said.txt 2>&1 || { cat said.txt; false; }
  cat said.txt
  grep 'closed/f: Permission denied' said.txt
  grep 'closed/deep/f: Permission denied' said.txt
  grep 'alone: Permission denied' said.txt
  grep 'READ open/f' said.txt
  has_no 'READ closed\|READ alone' said.txt
  agentmon session show lsm-reads | tee shown.txt
  by_lsm lsm-reads /home/dev/lsm/closed/deep/f closed
  by_lsm lsm-reads /home/dev/lsm/alone closed
  as_dev agentmon why --session lsm-reads --last 10 | tee why.txt
  grep 'lsm.yaml:6' why.txt
  # The next session finds the programs, and without one they end with the daemon.
  wait_for 30 no_session lsm-reads
  is_attached
  systemctl stop agentmon.service
  not is_attached
  [ ! -e /sys/fs/bpf/agentmon ]
  systemctl start agentmon.service
  wait_for 60 responds
}

# stored by the next daemon: the unlink of the second round.
stopped_meanwhile() {
  agentmon timeline --session lsm-attached --kind delete --enforced yes --format json | has '"mechanism":"bpf_lsm"'
}

# Nobody asks before: only the kernel's own rules hold there.
test_lsm_rules_hold_where_nobody_asks_and_without_a_daemon() {
  # shellcheck disable=SC2016
  as_dev sh -c 'rm -rf ~/lsm; mkdir -p ~/lsm/closed ~/lsm/open; cd ~/lsm; for f in closed/f closed/g alone open/f open/g; do echo TEXT >$f; done'
  lsm_policy best_effort /home/dev/lsm
  cat >/run/vm/acts.py <<'END'
import errno, os, sys

def name(n):
    return errno.errorcode[n]

def attempt(label, act):
    try:
        act()
        print(label, "ok", flush=True)
    except OSError as e:
        print(label, name(e.errno), flush=True)

os.chdir(os.path.expanduser("~/lsm"))
round = sys.argv[1]
for where in ("closed", "open"):
    f, g = where + "/f", where + "/g"
    say = lambda what: f"{round} {where} {what}"
    attempt(say("read"), lambda: open(f).read())
    attempt(say("write"), lambda: open(f, "a").write("x"))
    attempt(say("create"), lambda: open(where + "/new" + round, "x").close())
    attempt(say("truncate"), lambda: os.truncate(f, 1))
    attempt(say("chmod"), lambda: os.chmod(f, 0o600))
    attempt(say("utime"), lambda: os.utime(f, (1, 1)))
    attempt(say("setxattr"), lambda: os.setxattr(f, "user.am", b"1"))
    attempt(say("link"), lambda: os.link(g, "linked-" + where + round))
    attempt(say("mkdir"), lambda: os.mkdir(where + "/dir" + round))
    attempt(say("symlink"), lambda: os.symlink("x", where + "/sym" + round))
    attempt(say("unlink"), lambda: os.unlink(g if round == "2" else where + "/none"))
    attempt(say("rename"), lambda: os.rename(where, where + "-moved") or os.rename(where + "-moved", where))
for where in ("closed", "open"):
    nested = os.path.expanduser("~/lsm/nested-" + where)
    os.makedirs(nested, exist_ok=True)
    os.system(f"unshare -Urm sh -c 'mount --bind ~/lsm/{where} {nested} && cat {nested}/f >/dev/null && echo {round} {where} nested ok' 2>&1 | sed 's/^cat/{round} {where} nested/'")
END
  cat >/run/vm/attached.sh <<'END'
cd || exit 1
echo $$ >lsm/pid
for round in 1 2; do
  while [ ! -e lsm/go.$round ]; do sleep 0.2; done
  python3 /run/vm/acts.py $round >lsm/said.$round 2>&1
  echo over >>lsm/said.$round
done
while [ ! -e lsm/stop ]; do sleep 1; done
END
  systemd-run --quiet --collect --unit=agent-lsm -p User=dev -p PAMName=login sh /run/vm/attached.sh
  wait_for 60 test -s /home/dev/lsm/pid
  as_dev agentmon attach --pid "$(cat /home/dev/lsm/pid)" --name lsm-attached --policy "$LSM_POLICY"
  is_attached
  # It was tried from within the session's cgroup, by a process that is none of the session's.
  agentmon session show lsm-attached --json | tee shown.json
  enforced_by shown.json closed bpf_lsm
  grep -A3 '"lsm_change"' shown.json | grep '"active": true'
  agentmon timeline --session lsm-attached --format json >found.json
  has_no 'agentmond\|canary' found.json
  attempts_end_as_they_should() {
    as_dev touch "/home/dev/lsm/go.$1"
    wait_for 60 grep -qx over "/home/dev/lsm/said.$1"
    cat "/home/dev/lsm/said.$1"
    for act in read write create truncate chmod utime setxattr link mkdir symlink rename; do
      grep -x "$1 closed $act EACCES" "/home/dev/lsm/said.$1"
      grep -x "$1 open $act ok" "/home/dev/lsm/said.$1"
    done
    grep "$1 closed nested.*Permission denied" "/home/dev/lsm/said.$1"
    grep -x "$1 open nested ok" "/home/dev/lsm/said.$1"
  }
  attempts_end_as_they_should 1
  for kind in open open_write create truncate chmod link mkdir symlink rename write; do
    agentmon timeline --session lsm-attached --enforced yes --kind $kind --format json | tee found.json
    grep '"mechanism":"bpf_lsm"' found.json | has '"rule":"closed"'
  done
  # The next daemon takes seconds to come, and finds what was stopped meanwhile.
  local pid; pid=$(main_pid)
  kill -KILL "$pid"
  attempts_end_as_they_should 2
  grep -x '2 closed unlink EACCES' /home/dev/lsm/said.2
  grep -x '2 open unlink ok' /home/dev/lsm/said.2
  wait_for 60 pid_changed "$pid"
  wait_for 60 responds
  wait_for 30 stopped_meanwhile || { agentmon timeline --session lsm-attached | tail -n 30; false; }
  as_dev touch /home/dev/lsm/stop
  wait_for 30 no_session lsm-attached
  is_attached
}

# Who opened it is outside of the session; what arrives is judged like what is opened.
test_a_descriptor_of_a_closed_file_does_not_arrive() {
  wait_for 60 responds
  # shellcheck disable=SC2016
  as_dev sh -c 'rm -rf ~/lsm; mkdir -p ~/lsm/closed ~/lsm/open; cd ~/lsm; for f in closed/f open/f; do echo TEXT >$f; done'
  lsm_policy required /home/dev/lsm
  cat >/run/vm/give.py <<'END'
import os, socket
os.chdir("/home/dev/lsm")
server = socket.socket(socket.AF_UNIX)
server.bind("give")
server.listen()
while True:
    with server.accept()[0] as peer:
        fd = os.open(peer.recv(99).decode(), os.O_RDONLY)
        socket.send_fds(peer, [b"x"], [fd])
        os.close(fd)
END
  cat >/run/vm/take.py <<'END'
import os, socket
for name in ("closed/f", "open/f"):
    with socket.socket(socket.AF_UNIX) as s:
        s.connect("/home/dev/lsm/give")
        s.sendall(name.encode())
        fds = socket.recv_fds(s, 9, 1)[1]
        print(name, os.read(fds[0], 99).decode().strip() if fds else "nothing", flush=True)
END
  systemd-run --quiet --collect --unit=giver -p User=dev python3 /run/vm/give.py
  wait_for 30 test -S /home/dev/lsm/give
  as_dev python3 /run/vm/take.py | tee said.txt
  grep -x 'closed/f TEXT' said.txt
  as_dev agentmon run --name lsm-receive --policy "$LSM_POLICY" -- python3 /run/vm/take.py >said.txt 2>&1 || { cat said.txt; false; }
  cat said.txt
  grep -x 'closed/f nothing' said.txt
  grep -x 'open/f TEXT' said.txt
  by_lsm lsm-receive /home/dev/lsm/closed/f closed
  systemctl stop giver.service
}

# The same acts bare, and in a session where nobody is asked before: only the kernel's own rules hold there.
test_lsm_programs_stop_programs_and_what_is_mapped_as_code() {  # main, debian13, beside others
  cat >"$LSM_POLICY" <<'END'
version: 1
name: lsm
enforcement: best_effort
defaults: {file_write: allow, command: allow, network: allow, unix_socket: allow, signal: allow}
file_rules:
  - name: unread
    paths: ["/home/dev/lsm/unread/**"]
    decision: deny
command_rules:
  - name: not-run
    commands: ["/home/dev/lsm/closed/**", "/home/dev/lsm/closed/tool"]
    decision: deny
  - {name: not-by-name, commands: [forbidden], anywhere: true, decision: deny}
END
  chmod 644 "$LSM_POLICY"
  cat >/run/vm/code.py <<'END'
import ctypes, errno, glob, mmap, os, subprocess, sys

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
os.chdir(os.path.expanduser("~/lsm"))
loader = glob.glob("/lib64/ld-linux-x86-64.so.2")[0]
older = {w: os.open(w + "/lib.so", os.O_RDONLY) for w in ("closed", "unread", "open")}
if len(sys.argv) > 1:
    open("pid", "w").write(str(os.getpid()))
    with open("go") as go:
        go.read()

def attempt(label, act):
    try:
        act()
        print(label, "ok", flush=True)
    except OSError as e:
        print(label, errno.errorcode.get(e.errno, "failed"), flush=True)

def starts(program, **more):
    if subprocess.run([program] if isinstance(program, str) else program, stderr=subprocess.DEVNULL, **more).returncode:
        raise OSError(0, "it ended with an error")

def starts_fd(fd):
    child = os.fork()
    if child == 0:
        try:
            os.execve(fd, ["tool"], {})
        except OSError as e:
            os._exit(e.errno)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code:
        raise OSError(code, "")

def mapped(fd, prot):
    at = libc.mmap(None, 4096, prot, mmap.MAP_PRIVATE, fd, 0)
    if at == ctypes.c_void_p(-1).value:
        raise OSError(ctypes.get_errno(), "")
    return at

def protected(fd):
    if libc.mprotect(mapped(fd, mmap.PROT_READ), 4096, mmap.PROT_READ | mmap.PROT_EXEC):
        raise OSError(ctypes.get_errno(), "")

def nameless():
    with open("open/gone", "wb") as out, open("open/tool", "rb") as tool:
        out.write(tool.read())
    os.chmod("open/gone", 0o755)
    fd = os.open("open/gone", os.O_RDONLY)
    os.unlink("open/gone")
    return fd

def in_memory():
    fd = os.memfd_create("tool")
    with open("open/tool", "rb") as tool:
        os.write(fd, tool.read())
    return fd

for where in ("closed", "open"):
    say = lambda what: f"{where} {what}"
    attempt(say("start"), lambda: starts(f"{where}/tool"))
    attempt(say("symlink"), lambda: starts(f"links/{where}.sym"))
    attempt(say("hard"), lambda: starts(f"links/{where}.hard"))
    attempt(say("fd"), lambda: starts_fd(os.open(f"{where}/tool", os.O_PATH)))
    attempt(say("script"), lambda: starts(f"links/{where}.script"))
    attempt(say("loader"), lambda: starts([loader, f"./{where}/tool"]))
    attempt(say("dlopen"), lambda: ctypes.CDLL(f"{os.getcwd()}/{where}/lib.so"))
for where in ("closed", "unread", "open"):
    say = lambda what: f"{where} {what}"
    attempt(say("data"), lambda: mapped(older[where], mmap.PROT_READ))
    attempt(say("code"), lambda: mapped(older[where], mmap.PROT_READ | mmap.PROT_EXEC))
    attempt(say("protect"), lambda: protected(older[where]))
attempt("name", lambda: starts("open/forbidden"))
attempt("memory", lambda: starts_fd(in_memory()))
attempt("nameless", lambda: starts_fd(nameless()))
print("over", flush=True)
END
  # shellcheck disable=SC2016
  as_dev sh -c 'rm -rf ~/lsm; mkdir -p ~/lsm/closed ~/lsm/unread ~/lsm/open ~/lsm/links; cd ~/lsm
    for w in closed open; do
      cp /bin/true $w/tool; ln -s ../$w/tool links/$w.sym; ln $w/tool links/$w.hard
      printf "#!%s/%s/tool\n" "$PWD" $w >links/$w.script; chmod 755 links/$w.script
    done
    for w in closed unread open; do cp /lib/x86_64-linux-gnu/libz.so.1 $w/lib.so; done
    cp /bin/true open/forbidden; mkfifo go stop'
  as_dev python3 /run/vm/code.py | tee bare.txt
  grep -x over bare.txt
  [ "$(grep -c ' ok$' bare.txt)" = 26 ]
  cat >/run/vm/agent-code.sh <<'END'
cd || exit 1
python3 /run/vm/code.py wait >lsm/said 2>&1
read -r _ <lsm/stop
END
  systemd-run --quiet --collect --unit=agent-code -p User=dev -p PAMName=login sh /run/vm/agent-code.sh
  wait_for 60 test -s /home/dev/lsm/pid
  as_dev agentmon attach --pid "$(systemctl show -p MainPID --value agent-code)" --name lsm-code --policy "$LSM_POLICY"
  as_dev timeout 60 sh -c 'echo >~/lsm/go'
  wait_for 60 grep -qx over /home/dev/lsm/said
  cat /home/dev/lsm/said
  local act
  for act in start symlink hard fd script code protect; do grep -x "closed $act EACCES" /home/dev/lsm/said; done
  for act in loader dlopen; do grep -x "closed $act failed" /home/dev/lsm/said; done
  for act in code protect; do grep -x "unread $act EACCES" /home/dev/lsm/said; done
  for act in 'closed data' 'unread data'; do grep -x "$act ok" /home/dev/lsm/said; done
  for act in name memory nameless; do grep -x "$act EACCES" /home/dev/lsm/said; done
  [ "$(grep -c '^open .* ok$' /home/dev/lsm/said)" = 10 ]
  agentmon timeline --session lsm-code --kind exec --enforced yes --format json | tee found.json
  grep '"rule":"not-run"' found.json | grep '"mechanism":"bpf_lsm"' | grep '"exe":"/home/dev/lsm/closed/tool"' | has EACCES
  grep '"rule":"not-run"' found.json | has '"exe":"/home/dev/lsm/closed/lib.so"'
  grep '"rule":"not-by-name"' found.json | has '"exe":"/home/dev/lsm/open/forbidden"'
  grep -c '"rule":"nameless programs"' found.json | grep -x 2
  by_lsm lsm-code /home/dev/lsm/unread/lib.so unread
  agentmon why --session lsm-code --last 20 | tee why.txt
  grep 'lsm.yaml:10' why.txt
  as_dev timeout 60 sh -c 'echo >~/lsm/stop'
  wait_for 30 no_session lsm-code
}

# Servers outside of the session, on names that a rule is about and on names that none is.
start_servers() {
  cat >/run/vm/servers.py <<'EOF'
import os, select, socket
os.chdir(os.path.expanduser("~/lsm"))
kinds = {"stream": socket.SOCK_STREAM, "dgram": socket.SOCK_DGRAM, "seq": socket.SOCK_SEQPACKET}
open_sockets = []
for where in ("closed", "open"):
    for name, kind in kinds.items():
        for address in (f"{os.getcwd()}/{where}.{name}", f"\0am-{where}-{name}"):
            s = socket.socket(socket.AF_UNIX, kind)
            s.bind(address)
            if name != "dgram":
                s.listen(64)
            open_sockets.append(s)
    os.symlink(f"{where}.stream", f"{where}.link")
    os.link(f"{where}.stream", f"{where}.hard")
    os.mkdir(f"moved-{where}")
    s = socket.socket(socket.AF_UNIX)
    s.bind(f"moved-{where}/at.first")
    s.listen(64)
    open_sockets.append(s)
    os.rename(f"moved-{where}/at.first", f"{where}.renamed")
open("servers", "w").close()
while True:
    for s in select.select(open_sockets, [], [])[0]:
        s.recv(100) if s.type == socket.SOCK_DGRAM else s.accept()[0].close()
EOF
  systemd-run --quiet --collect --unit=unix-servers -p User=dev python3 /run/vm/servers.py
  wait_for 60 test -e /home/dev/lsm/servers
}

test_lsm_programs_stop_connects_to_unix_sockets() {  # beside others
  as_dev sh -c 'rm -rf ~/lsm; mkdir -p ~/lsm'
  start_servers
  cat >"$LSM_POLICY" <<'EOF'
version: 1
name: lsm
defaults: {file_write: allow, command: allow, network: allow, unix_socket: allow, signal: allow}
unix_socket_rules:
  - name: closed
    paths: ["/home/dev/l?m/closed.*", "@am-closed-*"]
    decision: deny
EOF
  chmod 644 "$LSM_POLICY"
  cat >/run/vm/connects.py <<'EOF'
import errno, os, socket

def attempt(label, act):
    try:
        act()
        print(label, "ok", flush=True)
    except OSError as e:
        print(label, errno.errorcode[e.errno], flush=True)

kinds = {"stream": socket.SOCK_STREAM, "dgram": socket.SOCK_DGRAM, "seq": socket.SOCK_SEQPACKET}
home = os.path.expanduser("~/lsm")
os.chdir(home)
for where in ("closed", "open"):
    for name, kind in kinds.items():
        new = lambda: socket.socket(socket.AF_UNIX, kind)
        attempt(f"{where} {name} path", lambda: new().connect(f"{home}/{where}.{name}"))
        attempt(f"{where} {name} abstract", lambda: new().connect(f"\0am-{where}-{name}"))
    dgram = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    attempt(f"{where} sendto", lambda: dgram.sendto(b"x", f"{home}/{where}.dgram"))
    attempt(f"{where} sendmsg", lambda: dgram.sendmsg([b"x"], [], 0, f"\0am-{where}-dgram"))
    for other in ("link", "hard", "renamed"):
        attempt(f"{where} {other}", lambda: socket.socket(socket.AF_UNIX).connect(f"{where}.{other}"))
    at = os.open(".", os.O_PATH)
    attempt(f"{where} fd", lambda: socket.socket(socket.AF_UNIX).connect(f"/proc/self/fd/{at}/{where}.stream"))
# What it serves itself is its own, under whatever name.
def serve(address, kind):
    own = socket.socket(socket.AF_UNIX, kind)
    own.bind(address)
    if kind != socket.SOCK_DGRAM: own.listen(1)
    socket.socket(socket.AF_UNIX, kind).connect(address)
for name, kind in kinds.items():
    attempt(f"own {name} path", lambda: serve(f"{home}/closed.own-{name}-{os.getpid()}", kind))
    attempt(f"own {name} abstract", lambda: serve(f"\0am-closed-own-{name}-{os.getpid()}", kind))
a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
attempt("pair", lambda: a.send(b"x"))
attempt("nobody", lambda: socket.socket(socket.AF_UNIX).connect(f"{home}/closed.nobody"))
EOF
  as_dev python3 /run/vm/connects.py | tee bare.txt
  as_dev agentmon run --name lsm-unix --policy "$LSM_POLICY" -- sh -c 'python3 /run/vm/connects.py; agentmon why --last 3; agentmon session show lsm-unix --json' >said.txt 2>&1 ||
    { cat said.txt; false; }
  cat said.txt
  local act
  for act in stream dgram seq; do
    grep -x "closed $act path EACCES" said.txt
    grep -x "closed $act abstract EACCES" said.txt
  done
  for act in sendto sendmsg link hard renamed fd; do grep -x "closed $act EACCES" said.txt; done
  # Without the session all of it goes through, and what no rule is about goes as it did.
  has_no EACCES bare.txt
  grep -v '^closed' bare.txt >expected.txt
  grep -x -F -f expected.txt -c said.txt | grep -x "$(wc -l <expected.txt)"
  enforced_by said.txt closed bpf_lsm
  by_lsm lsm-unix /home/dev/lsm/closed.stream closed
  by_lsm lsm-unix /home/dev/lsm/closed.renamed closed
  by_lsm lsm-unix @am-closed-stream closed
  agentmon timeline --session lsm-unix --kind unix_send --enforced yes --format json | grep '"path":"/home/dev/lsm/closed.dgram"'
  grep 'lsm.yaml:5' said.txt
  wait_for 30 no_session lsm-unix
  systemctl stop unix-servers.service
}

test_lsm_programs_keep_signals_and_debuggers_inside() {  # beside others
  as_dev sh -c 'rm -rf ~/lsm; mkdir -p ~/lsm'
  cat >"$LSM_POLICY" <<'EOF'
version: 1
name: lsm
defaults: {file_write: allow, command: allow, network: allow, unix_socket: allow, signal: allow}
signal_rules:
  - {name: outside, signals: [TERM, URG], target: {type: external}, decision: deny}
EOF
  chmod 644 "$LSM_POLICY"
  cat >/run/vm/victim.py <<'EOF'
import os, signal
for number in (signal.SIGTERM, signal.SIGUSR1):
    signal.signal(number, lambda n, _: open(f"{os.path.expanduser('~/lsm')}/got.{n}", "w").close())
open(os.path.expanduser("~/lsm/victim"), "w").write(str(os.getpid()))
while True:
    signal.pause()
EOF
  systemd-run --quiet --collect --unit=victim -p User=dev python3 /run/vm/victim.py
  wait_for 60 test -s /home/dev/lsm/victim
  cat >/run/vm/signals.py <<'EOF'
import ctypes, errno, os, signal, subprocess, sys

def attempt(label, act):
    try:
        act()
        print(label, "ok", flush=True)
    except OSError as e:
        print(label, errno.errorcode[e.errno], flush=True)

libc = ctypes.CDLL(None, use_errno=True)
class Vector(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("size", ctypes.c_size_t)]
def look(pid):
    # A look into memory as a debugger has it; what is read there does not matter.
    here = ctypes.create_string_buffer(8)
    mine, theirs = Vector(ctypes.addressof(here), 8), Vector(ctypes.addressof(here), 8)
    if libc.process_vm_readv(pid, ctypes.byref(mine), 1, ctypes.byref(theirs), 1, 0) < 0 and ctypes.get_errno() != errno.EFAULT:
        raise OSError(ctypes.get_errno(), "")
outside = int(open(os.path.expanduser("~/lsm/victim")).read())
child = subprocess.Popen(["sleep", "1000"])
attempt("exists", lambda: os.kill(outside, 0))
attempt("usr1", lambda: os.kill(outside, signal.SIGUSR1))
attempt("term", lambda: os.kill(outside, signal.SIGTERM))
attempt("pidfd", lambda: signal.pidfd_send_signal(os.pidfd_open(outside), signal.SIGTERM))
attempt("look", lambda: look(outside))
attempt("own look", lambda: look(child.pid))
attempt("own stop", lambda: os.kill(child.pid, signal.SIGSTOP))
attempt("own cont", lambda: os.kill(child.pid, signal.SIGCONT))
attempt("own term", lambda: os.kill(child.pid, signal.SIGTERM))
print("own", child.wait(), flush=True)
EOF
  # shellcheck disable=SC2016
  as_dev agentmon run --name lsm-signal --policy "$LSM_POLICY" -- \
    sh -c 'python3 /run/vm/signals.py; kill -URG $PPID; agentmon session show lsm-signal --json' >said.txt 2>&1 || { cat said.txt; false; }
  cat said.txt
  for act in term pidfd look; do grep -x "$act EPERM" said.txt; done
  for act in exists usr1 'own look' 'own stop' 'own cont' 'own term'; do grep -x "$act ok" said.txt; done
  grep -x 'own -15' said.txt
  wait_for 30 test -e /home/dev/lsm/got.10
  [ ! -e /home/dev/lsm/got.15 ]
  enforced_by said.txt outside bpf_lsm
  agentmon timeline --session lsm-signal --kind signal --enforced yes --format json | tee found.json
  grep '"mechanism":"bpf_lsm"' found.json | grep '"rule":"outside"' | grep "\"target_pid\":$(cat /home/dev/lsm/victim)" | has EPERM
  # Outside of the session all of it goes through.
  as_dev python3 /run/vm/signals.py | tee bare.txt
  has_no EPERM bare.txt
  wait_for 30 test -e /home/dev/lsm/got.15
  wait_for 30 no_session lsm-signal
  # In an attached session nothing else is in front.
  rm /home/dev/lsm/got.15
  echo 'enforcement: best_effort' >>"$LSM_POLICY"
  cat >/run/vm/attached-signals.sh <<'EOF'
cd || exit 1
echo $$ >lsm/pid
while [ ! -e lsm/go ]; do sleep 0.2; done
python3 /run/vm/signals.py >lsm/said 2>&1
echo over >>lsm/said
while [ ! -e lsm/stop ]; do sleep 0.2; done
EOF
  systemd-run --quiet --collect --unit=agent-signals -p User=dev -p PAMName=login sh /run/vm/attached-signals.sh
  wait_for 60 test -s /home/dev/lsm/pid
  as_dev agentmon attach --pid "$(cat /home/dev/lsm/pid)" --name lsm-look --policy "$LSM_POLICY"
  as_dev touch /home/dev/lsm/go
  wait_for 60 grep -qx over /home/dev/lsm/said
  cat /home/dev/lsm/said
  for act in term pidfd look; do grep -x "$act EPERM" /home/dev/lsm/said; done
  for act in exists usr1 'own look' 'own stop' 'own cont' 'own term'; do grep -x "$act ok" /home/dev/lsm/said; done
  [ ! -e /home/dev/lsm/got.15 ]
  agentmon timeline --session lsm-look --kind call --enforced yes --format json | tee found.json
  grep '"call":"ptrace"' found.json | grep '"mechanism":"bpf_lsm"' | grep '"rule":"processes outside of the session"' | has EPERM
  as_dev touch /home/dev/lsm/stop
  wait_for 30 no_session lsm-look
  systemctl stop victim.service
}

# Only a process of root could do any of this; and only an attached one, which has lost no capability, shows who stops it.
test_lsm_programs_keep_what_holds_a_session() {  # beside others
  rm -rf /run/vm/guard && mkdir -p /run/vm/guard/mine /run/vm/guard/held && echo TEXT >/run/vm/guard/text
  mount -t tmpfs none /run/vm/guard/held
  lsm_policy best_effort /run/vm/guard
  cat >/run/vm/guard/acts.py <<'EOF'
import ctypes, errno, os, subprocess
libc = ctypes.CDLL(None, use_errno=True)

def attempt(label, act):
    try:
        result = act()
        print(label, "ok" if not result or result > 0 else errno.errorcode[ctypes.get_errno()], flush=True)
    except OSError as e:
        print(label, errno.errorcode[e.errno], flush=True)

def write(path):
    os.close(os.open(path, os.O_WRONLY))

here = "/sys/fs/cgroup" + open("/proc/self/cgroup").read().strip().split("::")[1]
text = os.open("/run/vm/guard/text", os.O_RDONLY)
mine, held = b"/run/vm/guard/mine", b"/run/vm/guard/held"
attempt("out", lambda: write("/sys/fs/cgroup/cgroup.procs"))
attempt("own", lambda: write(here + "/cgroup.procs"))
attempt("mount", lambda: libc.mount(b"none", mine, b"tmpfs", 0, None))
libc.umount2(mine, 0)
attempt("umount", lambda: libc.umount2(held, 0))
attempt("nested", lambda: -subprocess.call(["unshare", "-m", "mount", "-t", "tmpfs", "none", "/run/vm/guard/mine"]))
attempt("bpf", lambda: libc.syscall(321, 11, ctypes.create_string_buffer(64), 64))  # the next program's number
attempt("module", lambda: libc.syscall(313, text, b"", 0))
EOF
  cat >/run/vm/guard/agent.sh <<'EOF'
echo $$ >/run/vm/guard/pid
read -r _ </run/vm/guard/go
python3 /run/vm/guard/acts.py >/run/vm/guard/said 2>&1
echo over >>/run/vm/guard/said
read -r _ </run/vm/guard/stop
EOF
  mkfifo /run/vm/guard/go /run/vm/guard/stop
  systemd-run --quiet --collect --unit=agent-guard sh -c 'sh /run/vm/guard/agent.sh & wait'
  wait_for 60 test -s /run/vm/guard/pid
  agentmon attach --pid "$(cat /run/vm/guard/pid)" --name lsm-guard --policy "$LSM_POLICY"
  agentmon status
  timeout 60 sh -c "echo >/run/vm/guard/go"
  wait_for 60 grep -qx over /run/vm/guard/said
  cat /run/vm/guard/said
  for act in out mount umount bpf module; do grep -x "$act EPERM" /run/vm/guard/said; done
  for act in own nested; do grep -x "$act ok" /run/vm/guard/said; done
  agentmon timeline --session lsm-guard --enforced yes --format json | grep '"rule":"what holds the session"' | tee found.json
  for act in mount umount2 bpf finit_module; do grep "\"call\":\"$act\"" found.json | grep '"mechanism":"bpf_lsm"' | has EPERM; done
  grep '"/sys/fs/cgroup/cgroup.procs"' found.json | grep '"kind":"open_write"' | has EPERM
  timeout 60 sh -c "echo >/run/vm/guard/stop"
  wait_for 30 no_session lsm-guard
  # Outside of the session root does what root may.
  python3 /run/vm/guard/acts.py | tee bare.txt
  has_no EPERM bare.txt
  grep -x 'module ENOEXEC' bare.txt
}

# What runs beside this has no such rules, or ends before.
test_lsm_programs_go_a_minute_after_the_last_session() {  # beside others
  wait_for 60 responds
  is_attached
  wait_for 90 not is_attached
  wait_for 30 not test -e /sys/fs/bpf/agentmon
}
