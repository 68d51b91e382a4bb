# shellcheck shell=bash
# What the cases use. Each runs in a shell of its own with `set -eux`, so a line that fails fails the case and the log
# shows which; it leaves the machine for the next. `dev` is an ordinary user.
# shellcheck disable=SC2034
DEB=/run/vm/agentmon.deb NEWER=/run/vm/newer.deb
CGROUP2=$(findmnt -n -t cgroup2 -o TARGET | head -n 1)
BASE=$CGROUP2/agentmon-main
SINCE=$(date '+%Y-%m-%d %H:%M:%S')

as_dev() { runuser -u dev -- env HOME=/home/dev "$@"; }
main_pid() { systemctl show -p MainPID --value agentmon.service; }
# wait_for SECONDS CMD...: SECONDS on a machine with nothing else to do; it has four times as long.
wait_for() {
  local deadline=$((SECONDS + 4 * $1)); shift
  until "$@"; do
    [ $SECONDS -lt $deadline ] || { echo "did not happen: $*"; return 1; }
    sleep 0.2
  done
}
# `set -e` does not look at what `!` turns round, nor at the first part of `a && b`.
not() { if "$@"; then return 1; fi; }
has_no() { not grep "$@"; }
# For the end of a pipe: `grep -q` does not read on, and who writes to it fails then.
has() { grep "$@" >/dev/null; }
# What the journal has of the unit since this case began.
unit_log() { journalctl --no-pager -o cat -u agentmon.service --since "$SINCE"; }
pid_changed() { local now; now=$(main_pid); [ "$now" != 0 ] && [ "$now" != "$1" ]; }
responds() { agentmon status >/dev/null 2>&1; }
# Ends the case's first part; its second, resumed_CASE, runs after the reboot.
reboot_here() { exit 100; }

# A session of `dev` (or of user $2) through a login of its own, whose processes begin in a scope of logind's, named $1.
# Below the policy POLICY, observe where that is not set: what another one stops is denied while there is no daemon.
# It makes a file every 0.2 s, which goes through the seccomp listener, and says so when one could not be made (errors)
# and how long the slowest took, in hundredths of a second (worst).
start_worker() {
  local user=${2:-dev}
  runuser -u "$user" -- mkdir "/home/$user/$1"
  cat >/run/vm/worker.sh <<'END'
cd "$1" || exit 1
echo $$ >pid
n=0 worst=-1
while [ ! -e stop ]; do
  n=$((n + 1))
  read -r from _ </proc/uptime
  : 2>>errors >"file.$((n % 5))" || echo "failed at $n" >>errors
  read -r to _ </proc/uptime
  took=$((${to%.*}${to#*.} - ${from%.*}${from#*.}))
  [ $took -le $worst ] || { worst=$took; echo $worst >worst; }
  echo $n >count
  sleep 0.2
done
END
  start_pulse
  systemd-run --quiet --collect --unit="agent-$1" -p "User=$user" -p PAMName=login \
    agentmon run --name "$1" --policy "${POLICY:-observe}" -- sh /run/vm/worker.sh "/home/$user/$1"
  wait_for 60 test -s "/home/$user/$1/count"
}
# A process that nobody asks about, for the same measure: a busy host makes everything in here wait.
start_pulse() {
  cat >/run/vm/pulse.sh <<'END'
worst=0
while :; do
  read -r from _ </proc/uptime
  sleep 0.1
  read -r to _ </proc/uptime
  took=$((${to%.*}${to#*.} - ${from%.*}${from#*.}))
  [ $took -le $worst ] || { worst=$took; echo $worst >/run/vm/pulse; }
done
END
  ! systemctl --quiet is-active pulse.service || systemctl stop pulse.service
  rm -f /run/vm/pulse
  systemd-run --quiet --collect --unit=pulse sh /run/vm/pulse.sh
}
# No call waited for two seconds, but for what the machine itself was held up.
was_not_held_up() {
  cat "/home/dev/$1/worst" /run/vm/pulse
  [ "$(cat "/home/dev/$1/worst")" -lt $((200 + $(cat /run/vm/pulse))) ]
}
count_of() { cat "/home/dev/$1/count"; }
counts_on() { [ "$(count_of "$1")" -gt "$2" ]; }
cgroup_of_worker() { sed -n 's/^0:://p' "/proc/$(cat "/home/dev/$1/pid")/cgroup"; }
# Nothing was lost over what the case did: the same process, in its cgroup, working, and nothing of it failed.
worker_is_whole() {
  local pid cgroup; pid=$(cat "/home/dev/$1/pid")
  cgroup=$(cgroup_of_worker "$1")
  [[ $cgroup == /agentmon-main/* || $cgroup == */agentmon-*.scope ]]
  grep -qx "$pid" "$CGROUP2$cgroup/cgroup.procs"
  wait_for 30 counts_on "$1" "$(($(count_of "$1") + 5))"
  [ ! -s "/home/dev/$1/errors" ]
}
stop_worker() {
  as_dev touch "/home/dev/$1/stop"
  wait_for 30 no_session "$1"
}
no_session() { ! agentmon session list | has -w "$1"; }
# enforced_by FILE RULE MECHANISM: the file ends with `agentmon session show --json`.
enforced_by() {
  sed -n '/^{/,$p' "$1" | python3 -c '
import json, sys
rule, mechanism = sys.argv[1:]
rules = [r for r in json.load(sys.stdin)["policy"]["rules"] if r["rule"] == rule]
print(rules)
assert [(r["enforced"], r["mechanism"]) for r in rules] == [("kernel", mechanism)]' "$2" "$3"
}
