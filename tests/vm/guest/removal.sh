# shellcheck shell=bash
# The package goes. The last cases.

unit_states() { systemctl is-enabled agentmon.socket agentmon.service; systemctl is-active agentmon.socket agentmon.service; }

test_a_package_that_comes_back_is_as_the_administrator_left_it() {  # every configuration
  echo 'fs.fanotify.max_user_groups = 4097' >/etc/sysctl.d/99-own.conf
  dpkg --remove agentmon
  not systemctl is-active agentmon.service
  dpkg -i "$DEB"
  [ "$(unit_states | tr '\n' ' ')" = 'enabled enabled active active ' ]
  [ "$(cat /proc/sys/fs/fanotify/max_user_groups)" = 4097 ]
  rm /etc/sysctl.d/99-own.conf
  systemctl disable --now agentmon.socket agentmon.service
  dpkg --remove agentmon
  dpkg -i "$DEB"
  [ "$(unit_states | tr '\n' ' ')" = 'disabled disabled inactive inactive ' ]
  systemctl mask agentmon.service
  dpkg -i "$DEB"
  [ "$(systemctl is-enabled agentmon.service)" = masked ]
  dpkg --remove agentmon
  dpkg -i "$DEB"
  [ "$(systemctl is-enabled agentmon.service)" = masked ]
  not systemctl is-active agentmon.service
  systemctl unmask agentmon.service
  systemctl enable --now agentmon.socket agentmon.service
  wait_for 30 responds
}

test_a_removal_lets_the_session_go_on_and_a_purge_leaves_nothing() {  # every configuration
  start_worker last
  # Hooks on connect and bind: nobody else on this machine has any.
  grep -w cgroup_sock_addr <(bpftool prog list)
  local pid; pid=$(cat /home/dev/last/pid)
  dpkg --remove agentmon
  not systemctl is-active agentmon.service
  not systemctl is-active agentmon.socket
  kill -0 "$pid"
  wait_for 30 counts_on last "$(($(count_of last) + 5))"
  [ ! -s /home/dev/last/errors ]
  [ -e /var/lib/agentmon/agentmon.db ]
  [ -e /etc/agentmon/agentmond.yaml ]
  pgrep -x agentmon-holder
  dpkg --purge agentmon
  not kill -0 "$pid"
  not pgrep -fa 'agentmon[d-]|worker[.]sh'
  find "$BASE" /run/agentmon /var/lib/agentmon /etc/agentmon /usr/share/agentmon /usr/libexec/agentmon 2>/dev/null |
    tee left.txt || true
  find /etc /run/systemd /usr/lib /var/lib/systemd /sys/fs/bpf /sys/fs/cgroup -iname '*agentmon*' \
    -not -path '*/agent-*.service*' | tee -a left.txt
  [ ! -s left.txt ]
  has_no agentmon <(nft list tables)
  has_no -w cgroup_sock_addr <(bpftool prog list)
  has_no agentmon /etc/passwd /etc/group
  not dpkg -s agentmon
  systemctl daemon-reload
  not systemctl cat agentmon.service
}
