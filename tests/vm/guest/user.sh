# shellcheck shell=bash
# The daemon of an ordinary user, as units of the user's systemd.
on_dev() { as_dev env XDG_RUNTIME_DIR="/run/user/$(id -u dev)" "$@"; }
user_manager_runs() { on_dev systemctl --user is-system-running 2>/dev/null | has -E 'running|degraded'; }
user_daemon_responds() { on_dev agentmon status --user >/dev/null 2>&1; }
user_session_is_gone() { ! on_dev agentmon session list --user | has -w "$1"; }
user_pid() { on_dev systemctl --user show -p MainPID --value agentmon.service; }
user_pid_changed() { local now; now=$(user_pid); [ "$now" != 0 ] && [ "$now" != "$1" ]; }
user_units_stop() { on_dev systemctl --user stop agentmon.socket agentmon.service; }
# begin_users: dev has a manager, and the administrator allows daemons to users.
begin_users() {
  loginctl enable-linger dev
  wait_for 60 user_manager_runs
  cp /etc/agentmon/agentmond.yaml kept.yaml
  echo 'client: {fallback: user}' >>/etc/agentmon/agentmond.yaml
  systemctl reload agentmon.service
}
end_users() {
  cp kept.yaml /etc/agentmon/agentmond.yaml
  systemctl reload agentmon.service
  loginctl disable-linger dev
}

test_a_user_runs_a_daemon_of_their_own_where_the_administrator_allows_it() {  # beside others
  loginctl enable-linger dev
  wait_for 60 user_manager_runs
  on_dev systemctl --user start agentmon.service
  on_dev systemctl --user show -p Type,ActiveState agentmon.service | grep -x ActiveState=active
  # Installed for the system, and nothing says that users may.
  local status=0
  on_dev agentmon run --user -- true 2>refused || status=$?
  [ $status = 125 ]
  grep 'client: {fallback: user}' refused
  begin_users
  wait_for 30 user_daemon_responds
  on_dev sh -c 'cd && agentmon run --user --name userrun --policy observe -- sh -c "touch user.file; /bin/echo hello; rm user.file; exit 5"' >said || status=$?
  [ $status = 5 ]
  grep -x hello said
  wait_for 30 user_session_is_gone userrun
  on_dev agentmon timeline --user --session userrun --format json | tee rows
  grep '"kind":"exec"' rows | grep '/bin/echo'
  grep '"kind":"delete"' rows | grep user.file
  # The system's daemon has seen nothing of it.
  agentmon session list --all | has_no userrun
  # What a policy denies on the network.
  on_dev sh -c 'cd && cat >net.yaml' <<'END'
version: 1
name: net
posture: enforce
defaults: {command: allow, file_read: allow, file_write: allow, network: allow, unix_socket: allow, signal: allow}
network_rules: [{name: not-three, cidrs: [127.0.0.3], decision: deny}]
END
  on_dev sh -c 'cd && agentmon run --user --name usernet --policy ./net.yaml -- bash -c ": >/dev/tcp/127.0.0.3/9; : >/dev/tcp/127.0.0.2/9"' >said 2>&1 || true
  grep 127.0.0.3 said | grep 'Operation not permitted'
  grep 127.0.0.2 said | grep 'Connection refused'
  wait_for 30 user_session_is_gone usernet
  on_dev agentmon timeline --user --session usernet --format json | tee rows
  grep '"rule":"not-three"' rows | grep '"mechanism":"seccomp"'
  # Restarted under a session that goes on.
  systemd-run --quiet --collect --unit=user-agent -p User=dev -p PAMName=login \
    env "XDG_RUNTIME_DIR=/run/user/$(id -u dev)" agentmon run --user --name userlong --policy observe -- sleep 600
  wait_for 30 on_dev agentmon session show --user userlong
  on_dev systemctl --user restart agentmon.service
  wait_for 30 user_daemon_responds
  on_dev agentmon session show --user --json userlong | grep '"state": "running"'
  on_dev agentmon session stop --user userlong
  wait_for 30 user_session_is_gone userlong
  on_dev agentmon status --user
  user_units_stop
  not user_daemon_responds
  end_users
}

test_a_users_client_starts_their_daemon_through_the_socket() {  # main, debian13, beside others
  begin_users
  on_dev systemd-analyze --user verify --man=no agentmon.service agentmon.socket
  on_dev systemctl --user enable --now agentmon.socket
  local runtime; runtime=/run/user/$(id -u dev)
  local socket; socket=$(stat -c %i:%a:%U "$runtime/agentmon/agentmond.sock")
  [ "${socket#*:}" = 600:dev ]
  [ "$(stat -c %a:%U "$runtime/agentmon")" = 700:dev ]
  not on_dev systemctl --user is-active agentmon.service
  # A client waits ten seconds, which an emulated start may need.
  wait_for 60 on_dev agentmon status --user
  on_dev systemctl --user is-active agentmon.service
  # It is no other user's, root included.
  not agentmon status --socket "$runtime/agentmon/agentmond.sock"
  # A session goes on over a stop; who asks next starts a daemon that has it.
  systemd-run --quiet --collect --unit=user-agent -p User=dev -p PAMName=login \
    env "XDG_RUNTIME_DIR=$runtime" agentmon run --user --name usersocket --policy observe -- sleep 600
  wait_for 30 on_dev agentmon session show --user usersocket
  on_dev systemctl --user stop agentmon.service
  not on_dev systemctl --user is-active agentmon.service
  [ "$(stat -c %i:%a:%U "$runtime/agentmon/agentmond.sock")" = "$socket" ]
  wait_for 60 on_dev agentmon session show --user usersocket
  on_dev agentmon session show --user --json usersocket | grep '"state": "running"'
  on_dev systemctl --user is-active agentmon.service
  # Killed, it comes back.
  local pid; pid=$(user_pid)
  kill -KILL "$pid"
  wait_for 60 user_pid_changed "$pid"
  wait_for 60 user_daemon_responds
  [ "$(stat -c %i:%a:%U "$runtime/agentmon/agentmond.sock")" = "$socket" ]
  on_dev agentmon session stop --user usersocket
  wait_for 30 user_session_is_gone usersocket
  on_dev systemctl --user disable agentmon.socket
  user_units_stop
  not user_daemon_responds
  end_users
}

# What Yama keeps from a process that is no forefather, and what PR_SET_PTRACER lifts: not for children.
look_at_a_neighbour() {
  on_dev python3 - <<'END'
import ctypes, errno, os, subprocess
libc = ctypes.CDLL(None, use_errno=True)
class Vector(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("size", ctypes.c_size_t)]

def answer(label, result):
    print(label, "ok" if result >= 0 else errno.errorcode[ctypes.get_errno()], flush=True)

# Left behind by its parent, it is nobody's here.
read, write = os.pipe()
if os.fork() == 0:
    if os.fork() == 0:
        libc.prctl(0x59616D61, ctypes.c_ulong(2**64 - 1), 0, 0, 0)  # PR_SET_PTRACER, PR_SET_PTRACER_ANY
        child = subprocess.Popen(["sleep", "1000"])
        os.write(write, f"{os.getpid()} {child.pid}".encode())
        child.wait()
    os._exit(0)
os.wait()
excepted, pid = map(int, os.read(read, 40).split())
answer("excepted pidfd_getfd", libc.syscall(438, os.pidfd_open(excepted), 0, 0))
answer("pidfd_getfd", libc.syscall(438, os.pidfd_open(pid), 0, 0))
here = ctypes.create_string_buffer(8)
mine = Vector(ctypes.addressof(here), 8)
result = libc.process_vm_readv(pid, ctypes.byref(mine), 1, ctypes.byref(mine), 1, 0)
# Where looking is allowed, this address of ours is none of theirs.
answer("process_vm_readv", 0 if result < 0 and ctypes.get_errno() == errno.EFAULT else result)
for link in ("cwd", "root", "fd/0"):
    try:
        os.readlink(f"/proc/{pid}/{link}")
        print(link, "ok")
    except OSError as e:
        print(link, errno.errorcode[e.errno])
os.kill(pid, 9)
END
}

test_where_yama_keeps_neighbours_apart_a_users_daemon_says_so_and_begins_no_session() {  # main, debian13
  begin_users
  local before status=0; before=$(sysctl -n kernel.yama.ptrace_scope)
  for scope in 0 1; do
    sysctl -w "kernel.yama.ptrace_scope=$scope"
    look_at_a_neighbour | tee "neighbour.$scope"
  done
  on_dev systemctl --user start agentmon.service
  wait_for 60 user_daemon_responds
  on_dev agentmon status --user | tee status.txt
  on_dev sh -c 'cd && agentmon run --user --policy observe -- touch yama.made' 2>refused || status=$?
  cat refused
  on_dev systemctl --user stop agentmon.service
  # The same with 0.
  sysctl -w kernel.yama.ptrace_scope=0
  wait_for 60 user_daemon_responds
  on_dev sh -c 'cd && agentmon run --user --policy observe -- touch yama.control'
  user_units_stop
  sysctl -w "kernel.yama.ptrace_scope=$before"
  end_users
  for act in 'excepted pidfd_getfd' pidfd_getfd process_vm_readv; do grep -x "$act ok" neighbour.0; done
  grep -x 'excepted pidfd_getfd ok' neighbour.1
  grep -x 'pidfd_getfd EPERM' neighbour.1
  grep -x 'process_vm_readv EPERM' neighbour.1
  for link in cwd root fd/0; do grep -x "$link ok" neighbour.1; done
  grep 'not active.*kernel.yama.ptrace_scope is 1' status.txt
  [ $status = 125 ]
  grep 'kernel.yama.ptrace_scope is 1.*sysctl kernel.yama.ptrace_scope=0' refused
  [ "$(grep -c '^agentmon: ' refused)" = 1 ]
  [ ! -e /home/dev/yama.made ]
  [ -e /home/dev/yama.control ]
}
