# shellcheck shell=bash
# The machine goes down and comes up again.

test_a_reboot_ends_the_open_session_and_leaves_nothing_of_it() {
  start_worker reboot
  agentmon session list | grep -w reboot
  date +%s >/home/dev/reboot/asked
  chown dev /home/dev/reboot/asked
  reboot_here
}

resumed_a_reboot_ends_the_open_session_and_leaves_nothing_of_it() {
  local asked booted; asked=$(cat /home/dev/reboot/asked)
  booted=$(date -d "$(uptime -s)" +%s)
  # Nothing of ours held the machine up: a unit that does not stop is waited for 90 s. On a busy host everything takes
  # longer, as its boots do.
  [ $((booted - asked)) -lt $((60 + $(cut -d. -f1 /var/lib/vm/booted))) ]
  systemctl is-active agentmon.service
  wait_for 20 no_session reboot
  agentmon session show reboot
  agentmon session show reboot | grep -i ended
  agentmon timeline --session reboot | grep -w create
  agentmon timeline verify
  [ -z "$(find "$BASE" -mindepth 2 -type d)" ]
  [ -z "$(find "$CGROUP2" -type d -name 'agentmon-*.scope')" ]
  [ -z "$(find /run/agentmon/sessions -type f)" ]
  has_no -iE 'warning|not active' <(agentmon status)
  systemctl --no-pager --failed | grep '0 loaded units'
  start_worker after-reboot
  worker_is_whole after-reboot
  stop_worker after-reboot
}
