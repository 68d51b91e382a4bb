# shellcheck shell=bash
# A newer package over this one.

test_an_upgrade_takes_the_running_session_over() {
  start_worker upgrade
  local pid socket; pid=$(main_pid)
  socket=$(stat -c %i /run/agentmon/agentmond.sock)
  echo '# changed by the administrator' >>/etc/agentmon/agentmond.yaml
  dpkg -i "$NEWER"
  dpkg-query -W -f '${Version}\n' agentmon | grep newer
  [ "$(main_pid)" != "$pid" ]
  responds
  [ "$(stat -c %i /run/agentmon/agentmond.sock)" = "$socket" ]
  grep -q 'changed by the administrator' /etc/agentmon/agentmond.yaml
  getcap /usr/libexec/agentmon/agentmon-ns | has cap_sys_admin=ep
  worker_is_whole upgrade
  was_not_held_up upgrade
  agentmon session list | grep -w upgrade
  agentmon timeline --session upgrade | grep 'nothing was recorded for'
  stop_worker upgrade
}

test_an_upgrade_leaves_a_service_that_is_off_alone() {
  systemctl disable --now agentmon.service agentmon.socket
  dpkg -i "$NEWER"
  not systemctl is-active agentmon.service agentmon.socket
  not systemctl is-enabled agentmon.service
  not systemctl is-enabled agentmon.socket
  systemctl enable --now agentmon.service
  wait_for 20 responds
}
