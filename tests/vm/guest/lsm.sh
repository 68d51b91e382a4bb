# shellcheck shell=bash
# What the kernel stops by itself where BPF is among the security modules. Each act has its control: the same on a file
# that no rule is about.

LSM_POLICY=/home/dev/lsm.yaml
lsm_policy() { # ENFORCEMENT DIRECTORY [EXTRA]
  cat >"$LSM_POLICY" <<END
version: 1
name: lsm
enforcement: $1
defaults: {file_write: allow, command: allow, network: allow, unix_socket: allow, signal: allow}
file_rules:
  - name: closed
    paths: ["$2/closed/**", "$2/alone"]
    decision: deny
${3:-}
END
  chmod 644 "$LSM_POLICY"
}
is_attached() { bpftool link show | grep -q 'attach_type lsm_mac'; }
pins() { find /sys/fs/bpf/agentmon -name 'on_*' 2>/dev/null | wc -l; }
# by_lsm SESSION PATH RULE [KIND]: a stored denial by the kernel, enforced, with its errno.
by_lsm() {
  agentmon timeline --session "$1" --enforced yes --format json | grep -F "\"$2\"" | tee found.json | head -n 3
  grep '"mechanism":"bpf_lsm"' found.json | grep "\"rule\":\"$3\"" | grep -q '"error":13\|EACCES'
}

test_lsm_programs_stop_reads_and_say_by_which_rule() {
  wait_for 60 responds
  agentmon status | tee status.txt
  grep -i 'lsm' status.txt
  # shellcheck disable=SC2016
  as_dev sh -c 'rm -rf ~/lsm; mkdir -p ~/lsm/closed/deep ~/lsm/open; cd ~/lsm; for f in closed/f closed/deep/f alone open/f; do echo TEXT >$f; done'
  lsm_policy required /home/dev/lsm
  cat >/run/vm/reads.sh <<'END'
cd ~/lsm || exit 1
for f in closed/f closed/deep/f alone open/f; do cat $f && echo "READ $f"; done
true
END
  as_dev env LC_ALL=C agentmon run --name lsm-reads --policy "$LSM_POLICY" -- sh /run/vm/reads.sh >said.txt 2>&1 || { cat said.txt; false; }
  cat said.txt
  grep 'closed/f: Permission denied' said.txt
  grep 'closed/deep/f: Permission denied' said.txt
  grep 'alone: Permission denied' said.txt
  grep 'READ open/f' said.txt
  has_no 'READ closed\|READ alone' said.txt
  agentmon session show lsm-reads | tee shown.txt
  by_lsm lsm-reads /home/dev/lsm/closed/deep/f closed
  by_lsm lsm-reads /home/dev/lsm/alone closed
  as_dev agentmon why --last 10 | tee why.txt
  grep 'lsm.yaml:6' why.txt
  # The next session finds the programs, and without one they end with the daemon.
  wait_for 30 no_session lsm-reads
  is_attached
  systemctl stop agentmon.service
  not is_attached
  [ ! -e /sys/fs/bpf/agentmon ]
  systemctl start agentmon.service
  wait_for 60 responds
}

# stored by the next daemon: the unlink of the second round.
stopped_meanwhile() {
  agentmon timeline --session lsm-attached --kind delete --enforced yes --format json | grep -q '"mechanism":"bpf_lsm"'
}

# Nobody asks before: only the kernel's own rules hold there.
test_lsm_rules_hold_where_nobody_asks_and_without_a_daemon() {
  # shellcheck disable=SC2016
  as_dev sh -c 'rm -rf ~/lsm; mkdir -p ~/lsm/closed ~/lsm/open; cd ~/lsm; for f in closed/f closed/g alone open/f open/g; do echo TEXT >$f; done'
  lsm_policy best_effort /home/dev/lsm
  cat >/run/vm/acts.py <<'END'
import errno, os, sys

def name(n):
    return errno.errorcode[n]

def attempt(label, act):
    try:
        act()
        print(label, "ok", flush=True)
    except OSError as e:
        print(label, name(e.errno), flush=True)

os.chdir(os.path.expanduser("~/lsm"))
round = sys.argv[1]
for where in ("closed", "open"):
    f, g = where + "/f", where + "/g"
    say = lambda what: f"{round} {where} {what}"
    attempt(say("read"), lambda: open(f).read())
    attempt(say("write"), lambda: open(f, "a").write("x"))
    attempt(say("create"), lambda: open(where + "/new" + round, "x").close())
    attempt(say("truncate"), lambda: os.truncate(f, 1))
    attempt(say("chmod"), lambda: os.chmod(f, 0o600))
    attempt(say("utime"), lambda: os.utime(f, (1, 1)))
    attempt(say("setxattr"), lambda: os.setxattr(f, "user.am", b"1"))
    attempt(say("link"), lambda: os.link(g, "linked-" + where + round))
    attempt(say("mkdir"), lambda: os.mkdir(where + "/dir" + round))
    attempt(say("symlink"), lambda: os.symlink("x", where + "/sym" + round))
    attempt(say("unlink"), lambda: os.unlink(g if round == "2" else where + "/none"))
    attempt(say("rename"), lambda: os.rename(where, where + "-moved") or os.rename(where + "-moved", where))
for where in ("closed", "open"):
    nested = os.path.expanduser("~/lsm/nested-" + where)
    os.makedirs(nested, exist_ok=True)
    os.system(f"unshare -Urm sh -c 'mount --bind ~/lsm/{where} {nested} && cat {nested}/f >/dev/null && echo {round} {where} nested ok' 2>&1 | sed 's/^cat/{round} {where} nested/'")
END
  cat >/run/vm/attached.sh <<'END'
cd || exit 1
echo $$ >lsm/pid
for round in 1 2; do
  while [ ! -e lsm/go.$round ]; do sleep 0.2; done
  python3 /run/vm/acts.py $round >lsm/said.$round 2>&1
  echo over >>lsm/said.$round
done
while [ ! -e lsm/stop ]; do sleep 1; done
END
  systemd-run --quiet --collect --unit=agent-lsm -p User=dev -p PAMName=login sh /run/vm/attached.sh
  wait_for 60 test -s /home/dev/lsm/pid
  as_dev agentmon attach --pid "$(cat /home/dev/lsm/pid)" --name lsm-attached --policy "$LSM_POLICY"
  is_attached
  attempts_end_as_they_should() {
    as_dev touch "/home/dev/lsm/go.$1"
    wait_for 60 grep -qx over "/home/dev/lsm/said.$1"
    cat "/home/dev/lsm/said.$1"
    for act in read write create truncate chmod utime setxattr link mkdir symlink rename; do
      grep -x "$1 closed $act EACCES" "/home/dev/lsm/said.$1"
      grep -x "$1 open $act ok" "/home/dev/lsm/said.$1"
    done
    grep "$1 closed nested.*Permission denied" "/home/dev/lsm/said.$1"
    grep -x "$1 open nested ok" "/home/dev/lsm/said.$1"
  }
  attempts_end_as_they_should 1
  for kind in open open_write create truncate chmod link mkdir symlink rename write; do
    agentmon timeline --session lsm-attached --enforced yes --kind $kind --format json | tee found.json
    grep '"mechanism":"bpf_lsm"' found.json | grep -q '"rule":"closed"'
  done
  # The next daemon takes seconds to come, and finds what was stopped meanwhile.
  local pid; pid=$(main_pid)
  kill -KILL "$pid"
  attempts_end_as_they_should 2
  grep -x '2 closed unlink EACCES' /home/dev/lsm/said.2
  grep -x '2 open unlink ok' /home/dev/lsm/said.2
  wait_for 60 pid_changed "$pid"
  wait_for 60 responds
  wait_for 30 stopped_meanwhile || { agentmon timeline --session lsm-attached | tail -n 30; false; }
  as_dev touch /home/dev/lsm/stop
  wait_for 30 no_session lsm-attached
  # A minute later all of it goes.
  is_attached
  wait_for 90 not is_attached
  wait_for 30 not test -e /sys/fs/bpf/agentmon
}
