# shellcheck shell=bash
# Sessions of ordinary users, as they are recorded and shown.

test_a_session_of_an_ordinary_user_is_recorded() {  # every configuration, beside others
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
  as_dev agentmon timeline --session first | has 'id -u'
  agentmon timeline verify
}

# With a policy that stops things, the daemon itself makes the calls that change files, as their caller: what its unit
# lets it do must be enough for that.
test_file_changing_calls_work_below_the_shipped_policies() {  # every configuration, beside others
  cat >/run/vm/changes.sh <<'END'
set -eux
cd "$1"
echo x >made; mkdir folder; mv made folder/moved; ln folder/moved linked; ln -s moved folder/symbolic
chmod 640 linked; truncate -s 10 linked; mkfifo pipe
[ "$(stat -c %a:%u:%s linked)" = "640:$(id -u):10" ]
[ "$(id -u)" != 0 ] || { chown dev:dev linked; [ "$(stat -c %u linked)" = 1000 ]; }
# A policy that stops things takes the right to make devices from root.
[ "$(id -u):$2" != 0:observe ] || { mknod device c 1 3; rm device; }
rm folder/moved folder/symbolic linked pipe; rmdir folder
END
  as_dev mkdir /home/dev/changes
  mkdir /root/changes
  for policy in observe default; do
    as_dev agentmon run --policy "$policy" -- sh /run/vm/changes.sh /home/dev/changes "$policy"
    agentmon run --allow-root --policy "$policy" --workspace /root/changes -- sh /run/vm/changes.sh /root/changes "$policy"
  done
}

test_an_ordinary_user_does_not_see_sessions_of_others() {  # beside others
  agentmon run --allow-root --name roots -- true
  agentmon timeline --session roots | grep exec
  as_dev agentmon timeline --session roots >rows.txt 2>&1 || true
  has_no exec rows.txt
}

test_two_users_are_kept_apart() {  # beside others
  useradd --create-home --shell /bin/bash eve
  as_eve() { runuser -u eve -- env HOME=/home/eve "$@"; }
  start_worker hers eve
  start_worker his dev
  agentmon session list | grep -w hers
  agentmon session list | grep -w his
  as_dev agentmon session list >his.txt
  grep -w his his.txt
  has_no -w hers his.txt
  as_eve agentmon session list >hers.txt
  grep -w hers hers.txt
  has_no -w his hers.txt
  not as_dev agentmon session stop hers
  not as_dev agentmon session show hers
  not as_eve agentmon session set-policy his observe
  kill -0 "$(cat /home/eve/hers/pid)"
  as_eve agentmon session stop hers
  wait_for 30 no_session hers
  worker_is_whole his
  stop_worker his
}

test_systemd_leaves_the_cgroups_of_sessions_alone() {
  start_worker beside
  local cgroup; cgroup=$(cgroup_of_worker beside)
  cat "$CGROUP2/cgroup.subtree_control" "$CGROUP2$cgroup/cgroup.controllers" "$BASE/cgroup.subtree_control"
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
  cat "$CGROUP2/cgroup.subtree_control" "$CGROUP2$cgroup/cgroup.controllers"
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
