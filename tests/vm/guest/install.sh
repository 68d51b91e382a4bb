# shellcheck shell=bash
# The package goes in, and what it brought is there.

test_the_package_installs() {  # every configuration
  dpkg -i "$DEB"
  # The image leaves documentation out.
  dpkg -V agentmon | tee missing.txt || true
  has_no -v /usr/share/doc/ missing.txt
  getcap /usr/libexec/agentmon/agentmon-ns | has cap_sys_admin=ep
  systemd-analyze verify --man=no agentmon.service agentmon.socket agentmon.slice
  [ "$(stat -c %a:%u /etc/agentmon/agentmond.yaml)" = 644:0 ]
  [ -d /etc/agentmon/floor.d ]
  [ -d /etc/agentmon/policies ]
}

test_the_service_is_active_and_has_nothing_to_complain_of() {  # every configuration
  systemctl is-active agentmon.service agentmon.socket
  systemctl is-enabled agentmon.service agentmon.socket
  responds
  agentmon status | tee status.txt
  [ "$(grep -c ' active' status.txt)" -ge 4 ]
  local complaints='warning|not active'
  if grep -qw bpf /sys/kernel/security/lsm; then
    has_no -iE "$complaints" status.txt
  else
    has_no -iE "$complaints" <(grep -v '^ *lsm .*bpf is not among the security modules' status.txt)
    grep '^ *lsm .*bpf is not among the security modules' status.txt
  fi
  agentmon policy list
  journalctl --no-pager -u agentmon.service
  [ "$(systemctl show -p NRestarts --value agentmon.service)" = 0 ]
  systemd-analyze security --no-pager agentmon.service >/run/vm/out/security.txt || true
  grep Cap "/proc/$(main_pid)/status"
}
