# shellcheck shell=bash
# The daemon of an ordinary user, as a unit of the user's systemd.
on_dev() { as_dev env XDG_RUNTIME_DIR="/run/user/$(id -u dev)" "$@"; }
user_manager_runs() { on_dev systemctl --user is-system-running 2>/dev/null | grep -qE 'running|degraded'; }
user_daemon_responds() { on_dev agentmon status --user >/dev/null 2>&1; }
user_session_is_gone() { ! on_dev agentmon session list --user | grep -qw "$1"; }

test_a_user_runs_a_daemon_of_their_own_where_the_administrator_allows_it() {
  loginctl enable-linger dev
  wait_for 60 user_manager_runs
  on_dev systemctl --user start agentmon.service
  on_dev systemctl --user show -p Type,ActiveState agentmon.service | grep -x ActiveState=active
  # Installed for the system, and nothing says that users may.
  local status=0
  on_dev agentmon run --user -- true 2>refused || status=$?
  [ $status = 125 ]
  grep 'client: {fallback: user}' refused
  cp /etc/agentmon/agentmond.yaml kept.yaml
  echo 'client: {fallback: user}' >>/etc/agentmon/agentmond.yaml
  systemctl reload agentmon.service
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
  on_dev systemctl --user stop agentmon.service
  not user_daemon_responds
  cp kept.yaml /etc/agentmon/agentmond.yaml
  systemctl reload agentmon.service
  loginctl disable-linger dev
}
