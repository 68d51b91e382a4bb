# shellcheck shell=bash
# The cases, in the order they run in: each leaves the machine for the next. `set -eux`, so a line that fails fails the
# case and the log shows which. `dev` is an ordinary user.
DEB=/run/vm/agentmon.deb
BASE=/sys/fs/cgroup/agentmon-main

as_dev() { runuser -u dev -- env HOME=/home/dev "$@"; }
main_pid() { systemctl show -p MainPID --value agentmon.service; }
# wait_for SECONDS CMD...
wait_for() {
  local left=$(($1 * 5)); shift
  until "$@"; do
    left=$((left - 1))
    [ $left -gt 0 ] || { echo "did not happen: $*"; return 1; }
    sleep 0.2
  done
}
# `set -e` does not look at what `!` turns round, nor at the first part of `a && b`.
not() { if "$@"; then return 1; fi; }
has_no() { not grep "$@"; }
# What the journal has of the unit since this case began.
unit_log() { journalctl --no-pager -o cat -u agentmon.service --since "$SINCE"; }
SINCE=$(date '+%Y-%m-%d %H:%M:%S')
pid_changed() { local now; now=$(main_pid); [ "$now" != 0 ] && [ "$now" != "$1" ]; }
responds() { agentmon status >/dev/null 2>&1; }

# A session of `dev` through a login of its own (its processes begin in a scope of logind's), named $1. It makes a file
# every 0.2 s, which goes through the seccomp listener, and says so when one could not be made.
start_worker() {
  as_dev mkdir "/home/dev/$1"
  cat >/run/vm/worker.sh <<'END'
cd "/home/dev/$1" || exit 1
echo $$ >pid
n=0
while [ ! -e stop ]; do
  n=$((n + 1))
  : 2>>errors >"file.$((n % 5))" || echo "failed at $n" >>errors
  echo $n >count
  sleep 0.2
done
END
  systemd-run --quiet --collect --unit="agent-$1" -p User=dev -p PAMName=login \
    agentmon run --name "$1" -- sh /run/vm/worker.sh "$1"
  wait_for 60 test -s "/home/dev/$1/count"
}
count_of() { cat "/home/dev/$1/count"; }
cgroup_of_worker() { sed -n 's/^0:://p' "/proc/$(cat "/home/dev/$1/pid")/cgroup"; }
# Nothing was lost over what the case did: the same process, in its cgroup, working, and nothing of it failed.
worker_is_whole() {
  local pid cgroup; pid=$(cat "/home/dev/$1/pid")
  cgroup=$(cgroup_of_worker "$1")
  [[ $cgroup == /agentmon-main/* ]]
  grep -qx "$pid" "/sys/fs/cgroup$cgroup/cgroup.procs"
  sleep 1
  local before; before=$(count_of "$1"); sleep 2; [ "$(count_of "$1")" -gt "$before" ]
  [ ! -s "/home/dev/$1/errors" ]
}
stop_worker() {
  as_dev touch "/home/dev/$1/stop"
  wait_for 30 no_session "$1"
}
no_session() { ! agentmon session list | grep -qw "$1"; }

test_the_package_installs() {
  dpkg -i "$DEB"
  # The image leaves documentation out.
  dpkg -V agentmon | tee missing.txt || true
  has_no -v /usr/share/doc/ missing.txt
  getcap /usr/libexec/agentmon/agentmon-ns | grep -q cap_sys_admin=ep
  systemd-analyze verify --man=no agentmon.service
  [ "$(stat -c %a:%u /etc/agentmon/agentmond.yaml)" = 644:0 ]
  [ -d /etc/agentmon/floor.d ]
  [ -d /etc/agentmon/policies ]
}

test_the_service_is_active_and_has_nothing_to_complain_of() {
  systemctl is-active agentmon.service
  systemctl is-enabled agentmon.service
  responds
  agentmon status | tee status.txt
  [ "$(grep -c ' active' status.txt)" = 4 ]
  has_no -iE 'warning|not active' status.txt
  agentmon policy list
  journalctl --no-pager -u agentmon.service
  [ "$(systemctl show -p NRestarts --value agentmon.service)" = 0 ]
  systemd-analyze security --no-pager agentmon.service >out/security.txt || true
  grep Cap "/proc/$(main_pid)/status"
}

test_the_daemon_has_the_mount_namespace_of_the_host() {
  [ "$(readlink "/proc/$(main_pid)/ns/mnt")" = "$(readlink /proc/1/ns/mnt)" ]
}

test_a_session_of_an_ordinary_user_is_recorded() {
  as_dev sh -c 'cd; agentmon run --name first -- sh -c "echo x >made; cat /etc/hostname; rm made; exec id -u"' | tee said.txt
  grep -qx 1000 said.txt
  agentmon session show first
  agentmon timeline --session first >rows.txt
  cat rows.txt
  grep -q 'exec .*cat /etc/hostname' rows.txt
  grep -q 'exec .*id -u' rows.txt
  grep -q 'create.* /home/dev/made' rows.txt
  grep -qE '(delete|unlink|remove).* /home/dev/made' rows.txt
  grep -q 'open .*/etc/hostname' rows.txt      # fanotify: agentmon-ns had its capability
  grep -q 'ended' rows.txt
  as_dev agentmon timeline --session first | grep -q 'id -u'
  agentmon timeline verify
}

test_an_ordinary_user_does_not_see_sessions_of_others() {
  agentmon run --allow-root --name roots -- true
  agentmon timeline --session roots | grep exec
  as_dev agentmon timeline --session roots >rows.txt 2>&1 || true
  has_no exec rows.txt
}

test_a_reload_reads_the_configuration_again() {
  local pid; pid=$(main_pid)
  echo 'log_level: nonsense' >/etc/agentmon/agentmond.yaml.new
  cp /etc/agentmon/agentmond.yaml /run/vm/agentmond.yaml.kept
  cp /etc/agentmon/agentmond.yaml.new /etc/agentmon/agentmond.yaml
  systemctl reload agentmon.service
  wait_for 20 sh -c 'agentmon status | grep -q nonsense'
  cp /run/vm/agentmond.yaml.kept /etc/agentmon/agentmond.yaml
  rm /etc/agentmon/agentmond.yaml.new
  systemctl reload agentmon.service
  wait_for 20 sh -c '! agentmon status | grep -q nonsense'
  [ "$(main_pid)" = "$pid" ]
  systemctl is-active agentmon.service
}

test_a_restart_takes_the_running_session_over() {
  start_worker restart
  local pid; pid=$(main_pid)
  systemctl restart agentmon.service
  [ "$(main_pid)" != "$pid" ]
  worker_is_whole restart
  agentmon session list | grep -w restart
  agentmon timeline --session restart | grep 'nothing was recorded for'
  unit_log
  stop_worker restart
}

test_the_daemon_killed_comes_back_and_takes_the_running_session_over() {
  start_worker killed
  local pid; pid=$(main_pid)
  kill -9 "$pid"
  wait_for 60 pid_changed "$pid"
  wait_for 60 responds
  worker_is_whole killed
  agentmon timeline --session killed | tail -n 30
  agentmon timeline --session killed | grep 'nothing was recorded for'
  unit_log
  stop_worker killed
}

test_systemd_leaves_the_cgroups_of_sessions_alone() {
  start_worker beside
  local cgroup; cgroup=$(cgroup_of_worker beside)
  cat /sys/fs/cgroup/cgroup.subtree_control "/sys/fs/cgroup$cgroup/cgroup.controllers" "$BASE/cgroup.subtree_control"
  systemctl daemon-reload
  systemd-run --wait --quiet -p MemoryMax=100M -p CPUWeight=50 true
  systemctl daemon-reexec
  systemctl set-property --runtime system.slice TasksMax=5000
  systemd-run --wait --quiet true
  [ "$(cgroup_of_worker beside)" = "$cgroup" ]
  worker_is_whole beside
  systemctl status --no-pager "$(cat /home/dev/beside/pid)" || true
  loginctl --no-pager list-sessions
  systemd-cgls --no-pager | head -n 60
  cat /sys/fs/cgroup/cgroup.subtree_control "/sys/fs/cgroup$cgroup/cgroup.controllers"
  # What systemd says of a process that its manager does not know.
  journalctl --no-pager -b -o cat --since "$SINCE" _PID=1 | tail -n 40
  stop_worker beside
}

test_the_end_of_a_login_ends_the_session_that_its_client_runs() {
  start_worker login
  local pid; pid=$(cat /home/dev/login/pid)
  loginctl --no-pager list-sessions
  # logind ends what is in the login's scope: the client, which passes the signal on. The agent is elsewhere.
  loginctl terminate-user dev
  wait_for 30 no_session login
  not kill -0 "$pid"
  responds
}

test_an_upgrade_takes_the_running_session_over() {
  start_worker upgrade
  local pid; pid=$(main_pid)
  echo '# changed by the administrator' >>/etc/agentmon/agentmond.yaml
  dpkg -i "$DEB"
  [ "$(main_pid)" != "$pid" ]
  responds
  grep -q 'changed by the administrator' /etc/agentmon/agentmond.yaml
  getcap /usr/libexec/agentmon/agentmon-ns | grep -q cap_sys_admin=ep
  worker_is_whole upgrade
  agentmon session list | grep -w upgrade
  stop_worker upgrade
}

test_a_removal_lets_the_session_go_on_and_a_purge_leaves_nothing() {
  start_worker last
  local pid; pid=$(cat /home/dev/last/pid)
  dpkg --remove agentmon
  not systemctl is-active agentmon.service
  kill -0 "$pid"
  local before; before=$(count_of last); sleep 2; [ "$(count_of last)" -gt "$before" ]
  [ ! -s /home/dev/last/errors ]
  [ -e /var/lib/agentmon/agentmon.db ]
  [ -e /etc/agentmon/agentmond.yaml ]
  pgrep -x agentmon-holder
  dpkg --purge agentmon
  not kill -0 "$pid"
  not pgrep -fa 'agentmon[d-]|worker[.]sh'
  find "$BASE" /run/agentmon /var/lib/agentmon /etc/agentmon /usr/share/agentmon /usr/libexec/agentmon \
    /etc/systemd/system/multi-user.target.wants/agentmon.service 2>&1 | tee left.txt || true
  has_no -v 'No such file' left.txt
  not dpkg -s agentmon
  systemctl daemon-reload
  not systemctl cat agentmon.service
}
