# shellcheck shell=bash
# The daemon as a service: activation, reload, restart, death, watchdog.

test_the_daemon_has_the_mount_namespace_of_the_host() {  # every configuration
  [ "$(readlink "/proc/$(main_pid)/ns/mnt")" = "$(readlink /proc/1/ns/mnt)" ]
}

test_the_limits_of_fanotify_are_raised() {
  [ "$(sysctl -n fs.fanotify.max_user_groups)" -ge 4096 ]
  [ "$(sysctl -n fs.fanotify.max_user_marks)" -ge 1048576 ]
}

test_a_client_starts_a_daemon_that_is_stopped() {
  local socket; socket=$(stat -c %i:%a:%U /run/agentmon/agentmond.sock)
  systemctl stop agentmon.service
  [ "$(stat -c %i:%a:%U /run/agentmon/agentmond.sock)" = "$socket" ]
  [ "${socket#*:}" = 666:root ]
  not systemctl is-active agentmon.service
  # A client waits ten seconds, which an emulated start may need.
  wait_for 60 as_dev agentmon status
  systemctl is-active agentmon.service
  # By hand, with the socket gone as well.
  systemctl stop agentmon.socket agentmon.service
  not systemctl is-active agentmon.socket
  systemctl start agentmon.service
  systemctl is-active agentmon.socket
  as_dev agentmon status
  has_no -i 'another daemon' <(unit_log)
}

test_a_configuration_with_another_socket_is_refused_with_both_names() {
  cp /etc/agentmon/agentmond.yaml kept.yaml
  echo 'socket: /run/agentmon/elsewhere.sock' >>/etc/agentmon/agentmond.yaml
  systemctl restart agentmon.service || true
  wait_for 20 sh -c 'journalctl --no-pager -o cat -u agentmon.service -n 20 | grep -q /run/agentmon/elsewhere.sock'
  unit_log | grep 'agentmond.sock.*elsewhere.sock.*agentmon.socket'
  cp kept.yaml /etc/agentmon/agentmond.yaml
  wait_for 20 responds
  systemctl is-active agentmon.service
}

test_a_reload_reads_the_configuration_again() {
  local pid; pid=$(main_pid)
  cp /etc/agentmon/agentmond.yaml kept.yaml
  echo 'log_level: nonsense' >/etc/agentmon/agentmond.yaml
  systemctl reload agentmon.service
  wait_for 20 sh -c 'agentmon status | grep -q nonsense'
  cp kept.yaml /etc/agentmon/agentmond.yaml
  systemctl reload agentmon.service
  wait_for 20 sh -c '! agentmon status | grep -q nonsense'
  [ "$(main_pid)" = "$pid" ]
  systemctl is-active agentmon.service
}

test_a_restart_takes_the_running_session_over() {  # every configuration
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

test_the_daemon_killed_comes_back_and_takes_the_running_session_over() {  # every configuration
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

test_a_daemon_that_stands_still_is_replaced_and_holds_no_agent_up() {
  [ "$(systemctl show -p WatchdogUSec --value agentmon.service)" = 30s ]
  start_worker still
  local pid; pid=$(main_pid)
  kill -STOP "$pid"
  # The watchdog of 30 s, and what ends and starts a daemon.
  wait_for 60 pid_changed "$pid"
  wait_for 60 responds
  unit_log | grep -i 'watchdog timeout'
  worker_is_whole still
  was_not_held_up still
  agentmon session list | grep -w still
  agentmon timeline --session still | grep 'nothing was recorded for'
  stop_worker still
}

test_a_daemon_that_works_is_left_alone_by_the_watchdog() {  # beside others
  # From its start on no timeout came, for longer than the watchdog's.
  local pid; pid=$(main_pid)
  wait_for 60 sh -c "[ \$(ps -o etimes= -p $pid) -ge 40 ]"
  [ "$(main_pid)" = "$pid" ]
  responds
}

test_status_tells_what_a_drop_in_takes_away() {
  mkdir -p /run/systemd/system/agentmon.service.d
  printf '[Service]\nRestrictSUIDSGID=yes\n' >/run/systemd/system/agentmon.service.d/drop-in.conf
  systemctl daemon-reload
  systemctl restart agentmon.service
  wait_for 60 responds
  agentmon status | tee status.txt
  grep 'fanotify.*not active.*openat2.*RestrictSUIDSGID' status.txt
  rm /run/systemd/system/agentmon.service.d/drop-in.conf
  systemctl daemon-reload
  systemctl restart agentmon.service
  wait_for 60 responds
  has_no 'not active' <(agentmon status)
}
