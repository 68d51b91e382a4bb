# shellcheck shell=bash
# Limits of sessions, and sessions as units of systemd.
# shellcheck disable=SC2016  # what is perl's own
LIMITS=/home/dev/limits

# limits_policy NAME LIMITS: a policy that allows everything and has these limits.
limits_policy() {
  as_dev mkdir -p "$LIMITS"
  cat >"$LIMITS/$1.yaml" <<END
version: 1
name: $1
defaults: {command: allow, file_write: allow, network: allow, unix_socket: allow, signal: allow}
resource_limits: {$2}
END
  chmod 644 "$LIMITS/$1.yaml"
}
# run_limited NAME LIMITS CMD...: in a session NAME of `dev`, from a login of its own; its standard output.
run_limited() {
  local name=$1 limits=$2; shift 2
  limits_policy "$name" "$limits"
  local status=0
  systemd-run --quiet --collect --pipe --wait --unit="client-$name" -p User=dev -p PAMName=login \
    agentmon run --name "$name" --policy "$LIMITS/$name.yaml" -- "$@" || status=$?
  # What it has hit and used is stored with its end, which comes a moment after that of its command.
  wait_for 30 no_session "$name" >&2
  return $status
}
# begin_limited NAME LIMITS: a session that sleeps until it is stopped.
begin_limited() {
  limits_policy "$1" "$2"
  # In a file: systemd-run has its own meaning for "$$".
  printf 'echo $$ >%s\nexec sleep 600\n' "$LIMITS/$1.pid" >"/run/vm/begin-$1.sh"
  systemd-run --quiet --collect --unit="client-$1" -p User=dev -p PAMName=login \
    agentmon run --name "$1" --policy "$LIMITS/$1.yaml" -- sh "/run/vm/begin-$1.sh"
  wait_for 60 test -s "$LIMITS/$1.pid"
  wait_for 60 is_sleep "$1"
}
is_sleep() { [ "$(cat "/proc/$(cat "$LIMITS/$1.pid")/comm")" = sleep ]; }
# Of the session's own fields, which are indented least.
field_of() { agentmon session show --json "$1" | sed -n "s/^  *\"$2\": \"\(.*\)\",*\$/\1/p" | head -n 1; }
directory_of() { echo "/sys/fs/cgroup$(field_of "$1" cgroup)"; }
no_such_unit() { [ "$(systemctl show -p LoadState --value "$1")" = not-found ]; }
rows_of() { agentmon timeline --session "$1" --kind limit --kind usage --kind session --format json; }

test_memory_beyond_the_limit_is_killed_and_without_one_it_is_not() {  # beside others
  local hungry='my $x = "x" x (150 << 20); print length($x), "\n"'
  run_limited roomy 'max_memory_mb: 600, memory_swap_max_mb: 0' perl -e "$hungry" | has -x $((150 << 20))
  # The shell lives on: only the hungry one is ended.
  printf 'perl -e %s\necho status $?\nsleep 1\n' "'$hungry'" >/run/vm/hungry.sh
  run_limited tight 'max_memory_mb: 60, memory_swap_max_mb: 0' sh /run/vm/hungry.sh | has -x 'status 137'
  rows_of tight | tee rows.txt
  grep '"resource":"memory"' rows.txt | grep '"killed":1'
  not grep '"kind":"usage".*"memory_peak_bytes":0' rows.txt
  rows_of roomy | has_no '"kind":"limit"'
}

test_forks_beyond_the_limit_fail_and_without_one_they_do_not() {  # beside others
  cat >/run/vm/many.pl <<'END'
my @made;
for (1 .. 40) { my $pid = fork; last unless defined $pid; if (!$pid) { sleep 60; exit } push @made, $pid }
print scalar(@made), "\n";
kill 9, @made;
END
  run_limited wide 'pids_max: 100' perl /run/vm/many.pl | has -x 40
  run_limited narrow 'pids_max: 20' perl /run/vm/many.pl | tee narrow.txt
  [ "$(cat narrow.txt)" -lt 20 ]
  agentmon timeline --session narrow --kind limit --format json | grep '"resource":"pids"'
  agentmon timeline --session wide --kind limit --format json | has_no pids
}

test_a_processor_quota_holds() {
  local burn='my $end = time + 5; 1 while time < $end; printf "%d\n", 1000 * (times)[0]'
  local free limited
  free=$(run_limited free 'pids_max: 100' perl -e "$burn")
  limited=$(run_limited slow 'cpu_quota_percent: 20' perl -e "$burn")
  echo "$free ms without, $limited ms with a quota of 20 %"
  [ "$limited" -lt 1600 ]
  [ "$free" -gt $((limited + 500)) ]
  agentmon timeline --session slow --kind limit --format json | grep '"resource":"cpu"'
}

test_limits_stand_in_the_control_files_and_follow_a_new_policy() {  # beside others
  begin_limited files 'max_memory_mb: 200, pids_max: 50, cpu_quota_percent: 150'
  local directory; directory=$(directory_of files)
  [ "$(cat "$directory/memory.max")" = $((200 << 20)) ]
  [ "$(cat "$directory/pids.max")" = 50 ]
  [ "$(cat "$directory/cpu.max")" = '150000 100000' ]
  agentmon session show files | has 'memory 200 MiB'
  limits_policy other 'pids_max: 60'
  agentmon session set-policy files --policy "$LIMITS/other.yaml"
  wait_for 20 grep -qx 60 "$directory/pids.max"
  wait_for 20 grep -qx max "$directory/memory.max"
  systemctl daemon-reload
  [ "$(cat "$directory/pids.max")" = 60 ]
  agentmon session stop files
}

# What is dropped is tested where there is a network; here, that this kernel takes the programs and systemd leaves them.
test_the_network_rate_stays_on_the_scope() {
  begin_limited rate 'net_bandwidth_mbps: 8'
  agentmon session show rate | grep 'network 8 Mbit/s'
  local cgroup; cgroup=$CGROUP2$(field_of rate cgroup)
  on_scope() { [ "$(bpftool cgroup show "$cgroup" | grep -c am_rate)" = "$1" ]; }
  on_scope 2
  systemctl daemon-reload
  systemctl restart agentmon
  wait_for 60 responds
  on_scope 2
  agentmon session set-policy rate --policy observe
  wait_for 30 on_scope 0
  agentmon session stop rate
  wait_for 30 no_session rate
}

test_a_session_is_a_scope_below_its_users_slice() {  # main, debian13, beside others
  begin_limited scope 'pids_max: 50'
  local id unit pid; id=$(field_of scope id); unit=agentmon-$id.scope; pid=$(cat "$LIMITS/scope.pid")
  [ "$(field_of scope unit)" = "$unit" ]
  [ "$(field_of scope cgroup)" = "/user.slice/user-1000.slice/$unit" ]
  [ "$(systemctl show -p Slice --value "$unit")" = user-1000.slice ]
  [ "$(systemctl show -p ActiveState --value "$unit")" = active ]
  systemctl show -p Description --value "$unit" | has scope
  systemctl status --no-pager "$pid" | has "$unit"
  systemd-cgls --no-pager /user.slice | has "$unit"
  [ "$(systemctl show -p TasksMax --value "$unit")" = 50 ]
  # What a session does is recorded there as elsewhere.
  agentmon timeline --session scope --kind exec | has sleep
  # Its files are root's: nobody leaves by them, and nobody comes.
  [ "$(stat -c %u "$(directory_of scope)/cgroup.procs")" = 0 ]
  not as_dev sh -c "echo $pid >/sys/fs/cgroup/user.slice/user-1000.slice/cgroup.procs"
  not as_dev sh -c "echo \$\$ >$(directory_of scope)/cgroup.procs"
  agentmon session stop "$id"
  wait_for 30 no_such_unit "$unit"
  wait_for 30 test ! -e "/sys/fs/cgroup/user.slice/user-1000.slice/$unit"
}

test_network_and_files_of_a_scope_are_recorded() {  # beside others
  run_limited net 'pids_max: 50' bash -c ': >/home/dev/limits/made; : </dev/tcp/127.0.0.1/1' || true
  agentmon timeline --session net --kind connect | grep '127.0.0.1:1/tcp'
  agentmon timeline --session net --kind create | grep /home/dev/limits/made
}

test_a_session_of_root_is_a_scope_below_agentmons_slice() {  # beside others
  systemd-run --quiet --collect --unit=client-roots -p Type=exec \
    agentmon run --allow-root --name rootscope -- sleep 600
  wait_for 60 sh -c 'agentmon session show rootscope | grep -q running'
  field_of rootscope cgroup | grep -x "/agentmon.slice/agentmon-sessions.slice/agentmon-$(field_of rootscope id).scope"
  agentmon session stop rootscope
}

test_limits_of_the_users_slice_hold_in_a_session() {
  systemctl set-property --runtime user-1000.slice MemoryMax=120M MemorySwapMax=0
  not run_limited slice 'pids_max: 50' perl -e 'my $x = "x" x (200 << 20)'
  systemctl set-property --runtime user-1000.slice MemoryMax=infinity MemorySwapMax=infinity
  run_limited slice2 'pids_max: 50' perl -e 'my $x = "x" x (200 << 20)'
}

test_a_restart_and_a_kill_find_scopes_again() {
  begin_limited again 'pids_max: 50, session_timeout: 1h'
  local unit pid; unit=$(field_of again unit)
  systemctl restart agentmon.service
  wait_for 60 responds
  [ "$(field_of again state)" = running ]
  pid=$(main_pid)
  kill -KILL "$pid"
  wait_for 60 pid_changed "$pid"
  wait_for 60 responds
  [ "$(field_of again state)" = running ]
  [ "$(field_of again unit)" = "$unit" ]
  [ "$(systemctl show -p ActiveState --value "$unit")" = active ]
  agentmon session stop again
  wait_for 30 no_such_unit "$unit"
}

test_a_timeout_ends_a_scope() {  # beside others
  # A program that TERM ended is no failure to systemd-run.
  run_limited brief 'session_timeout: 3s' sleep 600 || true
  rows_of brief | grep '"resource":"session_timeout"'
  wait_for 30 no_such_unit "$(field_of brief unit)"
}

test_without_the_bus_a_session_is_a_plain_cgroup_with_its_limits() {
  systemctl stop dbus.socket dbus.service
  limits_policy plain 'pids_max: 50'
  runuser -u dev -- agentmon run --name plain --policy "$LIMITS/plain.yaml" -- cat /proc/self/cgroup >plain.txt || true
  systemctl start dbus.socket dbus.service
  cat plain.txt
  grep -q '^0::/agentmon-main/sessions/' plain.txt
}
