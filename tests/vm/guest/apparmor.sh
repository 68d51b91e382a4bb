# shellcheck shell=bash
# The AppArmor profile, where the parser knows `userns,`: Debian 13.

NS=/usr/libexec/agentmon/agentmon-ns
SHIPPED=/etc/apparmor.d/agentmon
loaded() { grep -F "$1" /sys/kernel/security/apparmor/profiles; }
label_of() { cat "/proc/$1/attr/apparmor/current"; }
# A session whose agent makes a user namespace and uses what it may in there.
runs_a_namespace() {
  as_dev env LC_ALL=C agentmon run --name "$1" --policy observe -- unshare -Urm sh -c 'mount -t tmpfs none /mnt && echo mounted'
}

test_the_apparmor_profile_is_loaded_and_attached() {  # debian13
  apparmor_parser --version
  sysctl -a --pattern 'apparmor|unprivileged_userns' || true
  cmp /usr/share/agentmon/apparmor/agentmon "$SHIPPED"
  apparmor_parser --skip-kernel-load --skip-cache "$SHIPPED"
  loaded 'agentmon (unconfined)'
  aa-status --json | grep '"agentmon"'
  # The first of a process that agentmon-ns and then the shim became: what they start stays in it.
  systemd-run --quiet --collect --unit=agent-label -p User=dev -p PAMName=login \
    agentmon run --name label --policy observe -- sleep 600
  wait_for 60 sh -c 'agentmon session show label | grep -q running'
  local cgroup; cgroup=$CGROUP2$(agentmon session show --json label | sed -n 's/^  *"cgroup": "\(.*\)",*$/\1/p' | head -n 1)
  label_of "$(head -n 1 "$cgroup/cgroup.procs")" | grep -x 'agentmon (unconfined)'
  # The client is in none.
  label_of "$(systemctl show -p MainPID --value agent-label.service)" | grep -x unconfined
  agentmon session stop label
  wait_for 30 no_session label
}

test_a_profile_that_the_administrator_has_changed_stays() {  # debian13
  echo '# own' >>"$SHIPPED"
  dpkg -i "$DEB"
  [ "$(tail -n 1 "$SHIPPED")" = '# own' ]
  rm "$SHIPPED"
  dpkg -i "$DEB"
  [ ! -e "$SHIPPED" ]
  dpkg --remove agentmon
  dpkg -i "$DEB"
  cmp /usr/share/agentmon/apparmor/agentmon "$SHIPPED"
  loaded 'agentmon (unconfined)'
  wait_for 30 responds
}

# Debian's kernel has not Ubuntu's switch, which refuses namespaces to whoever has no profile: a profile on the same
# programs that allows everything else stands for it.
test_a_session_has_user_namespaces_by_the_profile() {  # debian13
  # With it reads are recorded, and then new namespaces refused.
  setcap -r "$NS"
  sed -e 's/^profile agentmon /profile agentmon-test /' -e 's/ flags=(unconfined)//' \
    -e 's/^  userns,/  allow all,\n  audit deny userns,/' -e '/local/d' "$SHIPPED" | tee confined
  apparmor_parser --remove "$SHIPPED"
  apparmor_parser --replace --skip-cache confined
  loaded 'agentmon-test (enforce)'
  not runs_a_namespace confined >confined.txt 2>&1
  cat confined.txt
  grep 'unshare.*Permission denied' confined.txt
  journalctl --no-pager -k --since "$SINCE" | grep 'apparmor="DENIED".*operation="userns_create".*profile="agentmon-test"'
  apparmor_parser --remove confined
  apparmor_parser --replace "$SHIPPED"
  loaded 'agentmon (unconfined)'
  runs_a_namespace shipped | grep -x mounted
  setcap cap_sys_admin=ep "$NS"
}
