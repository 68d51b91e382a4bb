# shellcheck shell=bash
# Each capability of the service's bounding set: what fails without it. The table of docs/hardening.md.

DROP_IN=/run/systemd/system/agentmon.service.d/capabilities.conf
start_without() { # CAPABILITY | nothing
  mkdir -p "${DROP_IN%/*}"
  printf '[Service]\nCapabilityBoundingSet=%s\n' "${1:+~$1}" >"$DROP_IN"
  [ -n "$1" ] || rm "$DROP_IN"
  systemctl daemon-reload
  timeout 60 systemctl restart agentmon.service && responds
}

as_agent() { as_dev agentmon run --policy default "$@"; }
as_root_agent() { agentmon run --allow-root --workspace /root/work --policy default "$@"; }
# What is tried. All of it works with the whole set.
try_sources() { ! agentmon status | tee /dev/stderr | grep 'not active'; }
try_file_changes() {
  as_agent -- sh -c 'cd ~/private && echo x >made && mv made other && rm other'
}
try_root_chown() { as_root_agent -- sh -c 'cd /root/work && : >own && chown dev:dev own'; }
try_root_chmod() { as_root_agent -- sh -c 'chmod 600 /root/work/theirs'; }
try_root_setgid() {
  as_root_agent -- sh -c 'cd /root/work && : >group && chgrp games group && chmod 2755 group'
  [ "$(stat -c %a /root/work/group)" = 2755 ]
}
try_ends_softly() {
  rm -f /home/dev/private/ended
  systemd-run --quiet --collect --unit=soft -p User=dev -p PAMName=login agentmon run --name soft --policy observe -- \
    sh -c 'trap "echo >/home/dev/private/ended; exit" TERM; echo >/home/dev/private/began; while :; do sleep 0.2; done'
  wait_for 20 test -e /home/dev/private/began && agentmon session stop soft
  rm -f /home/dev/private/began
  wait_for 20 no_session soft && [ -e /home/dev/private/ended ]
}
# The session's cgroup is opened by its number.
try_backstop() {
  local name=backstop-$SECONDS
  as_dev agentmon run --name "$name" --policy /home/dev/net.yaml -- true
  agentmon session show "$name" | tee /dev/stderr | grep network_backstop | grep -v 'not active'
}
# Of the threads that agents wait for.
try_priority() {
  as_agent -- true
  ps -L -o ni= -p "$(main_pid)" | grep -e -20
}
try_start() { responds; }

# CAPABILITY TRY: the first of what failed when the try was made of all.
needed() {
  cat <<'END'
cap_sys_admin sources
cap_net_admin sources
cap_sys_ptrace file_changes
cap_kill ends_softly
cap_sys_nice priority
cap_dac_override start
cap_dac_read_search backstop
cap_setuid file_changes
cap_setgid file_changes
cap_chown root_chown
cap_fowner root_chmod
cap_fsetid root_setgid
END
}

test_each_capability_of_the_service_is_needed() {  # capabilities
  mkdir /root/work && : >/root/work/theirs && chown dev /root/work/theirs
  as_dev mkdir -m 700 /home/dev/private
  cat >/home/dev/net.yaml <<'END'
version: 1
name: net
defaults: {file_write: allow, command: allow, network: allow, unix_socket: allow, signal: allow}
network_rules:
  - {name: closed, cidrs: [127.0.0.3], decision: deny}
END
  chmod 644 /home/dev/net.yaml
  systemctl show -p CapabilityBoundingSet --value agentmon.service | tr ' ' '\n' | sort >whole
  needed | cut -d' ' -f1 | sort | diff whole -
  local capability try
  for try in $(needed | cut -d' ' -f2 | sort -u); do "try_$try"; done
  while read -r capability try <&3; do
    start_without "${capability^^}" || [ "$try" = start ]
    not "try_$try"
  done 3< <(needed)
  start_without ''
  for try in $(needed | cut -d' ' -f2 | sort -u); do "try_$try"; done
}
