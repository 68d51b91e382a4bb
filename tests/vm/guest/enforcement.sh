# shellcheck shell=bash
# What the shipped policy stops for an ordinary user, what goes on below it, and what it is over the daemon's end.

# every_source_is_active NAME: of the session.
every_source_is_active() {
  agentmon session show "$1" | tee shown.txt
  # Of Landlock, and without LSM hooks of unix sockets, Debian 12's kernel has less than is needed.
  has_no 'not active' <(grep -vE '^ *signal .*landlock|^ *unix .*not in this kernel \(needs 6\.7\)' shown.txt)
  has_no 'ABI 0' shown.txt
}

test_the_default_policy_stops_secrets_and_names_the_rule() {  # every configuration, beside others
  as_dev sh -c 'cd; mkdir -p .ssh work; echo KEY >.ssh/id_x; echo SECRET=1 >work/.env'
  cat >/run/vm/secrets.sh <<'END'
cd || exit 1
cat .ssh/id_x && echo READ
cat work/.env && echo READ
(echo more >>work/.env) && echo WRITTEN
(echo new >.ssh/id_new) && echo MADE
mv work/.env work/other && echo MOVED
ln work/.env work/linked && echo LINKED
cp /etc/passwd work/.env.local && echo COPIED
true
END
  as_dev env LC_ALL=C agentmon run --name secrets --policy default -- sh /run/vm/secrets.sh >said.txt 2>&1
  cat said.txt
  has_no -E 'KEY|SECRET|READ|WRITTEN|MADE|MOVED|LINKED|COPIED' said.txt
  # The kernel's own rules say EACCES, fanotify EPERM.
  local stopped='Operation not permitted'
  ! grep -qw bpf /sys/kernel/security/lsm || stopped='Permission denied'
  grep "id_x: $stopped" said.txt
  grep "cat: work/.env: $stopped" said.txt
  grep 'work/.env: Permission denied' said.txt
  grep 'id_new: Permission denied' said.txt
  [ "$(cat /home/dev/work/.env)" = SECRET=1 ]
  for made in .ssh/id_new work/other work/linked work/.env.local; do [ ! -e "/home/dev/$made" ]; done
  as_dev agentmon why --session secrets --last 20 | tee why.txt
  grep -A5 'id_x' why.txt | grep 'secrets-of-the-user'
  grep -A5 'work/.env:' why.txt | grep 'secret-files'
  every_source_is_active secrets
}

test_ordinary_work_goes_on_below_the_default_policy() {  # every configuration, beside others
  cat >/run/vm/work.sh <<'END'
set -eux
mkdir -p "$HOME/project/src" && cd "$HOME/project"
[ "$(stat -c %U /etc/passwd)" = root ]
[ "$(id -un)" = dev ]
echo one >a; cp a b; mv b src/c; ln -s a l; chmod 600 a; touch src/d; rm l src/d; rmdir "$(mktemp -d)"
[ "$(cat src/c)" = one ]
python3 -c 'import subprocess
open("made", "w").write("x" * 100000)
print(subprocess.run(["wc", "-c", "made"], check=True, capture_output=True).stdout)'
cat ~/.bashrc ~/.profile /etc/passwd >read
find / -xdev -maxdepth 2 >found 2>/dev/null || true
i=0; while [ $i -lt 50 ]; do i=$((i + 1)); echo $i >many.$i; cat many.$i >>all; rm many.$i; done
git init --quiet repository && cd repository
echo text >file; git add file; git -c user.name=n -c user.email=n@example.org commit --quiet --message one
git checkout --quiet -b other; echo more >>file; git -c user.name=n -c user.email=n@example.org commit --quiet --all --message two
[ "$(git log --oneline | wc -l)" = 2 ]
git status --short; git diff HEAD~1 --stat
END
  local status=0
  as_dev agentmon run --name work --policy default -- sh /run/vm/work.sh || status=$?
  as_dev agentmon timeline --session work --enforced yes
  [ $status = 0 ]
}

# What is denied stays denied: the marks and the listener of a session outlive the daemon.
test_enforcement_outlives_the_daemon() {
  as_dev sh -c 'cd; mkdir -p work; echo SECRET=1 >work/.env; rm -f go.* said.*'
  cat >/run/vm/rounds.sh <<'END'
cd || exit 1
for round in 1 2 3; do
  while [ ! -e "go.$round" ]; do sleep 0.2; done
  { cat work/.env; echo x >>work/.env; echo x >fine; cat fine; } >"said.$round" 2>&1
  echo over >>"said.$round"
done
END
  systemd-run --quiet --collect --unit=agent-outlives -p User=dev -p PAMName=login \
    agentmon run --name outlives --policy default -- sh /run/vm/rounds.sh
  round() {
    as_dev touch "/home/dev/go.$1"
    wait_for 60 grep -qx over "/home/dev/said.$1"
    cat "/home/dev/said.$1"
    grep -qx x "/home/dev/said.$1"
    has_no SECRET "/home/dev/said.$1"
    [ "$(grep -c '\.env' "/home/dev/said.$1")" = 2 ]
    [ "$(cat /home/dev/work/.env)" = SECRET=1 ]
  }
  wait_for 60 sh -c 'agentmon session show outlives | grep -q running'
  round 1
  systemctl restart agentmon.service
  wait_for 60 responds
  round 2
  local pid; pid=$(main_pid)
  kill -KILL "$pid"
  wait_for 60 pid_changed "$pid"
  wait_for 60 responds
  round 3
  wait_for 60 no_session outlives
  has_no 'said\|fine' <(agentmon timeline --session outlives --enforced yes)
}

test_a_running_process_is_taken_into_a_session() {  # beside others
  rm -f /home/dev/attached.*
  cat >/run/vm/attached.sh <<'END'
cd || exit 1
sh -c 'echo $$ >attached.pid; while [ ! -e attached.stop ]; do ls / >/dev/null; sleep 0.5; done'
true
END
  systemd-run --quiet --collect --unit=agent-attached -p User=dev -p PAMName=login sh /run/vm/attached.sh
  wait_for 60 test -s /home/dev/attached.pid
  local pid; pid=$(cat /home/dev/attached.pid)
  cat "/proc/$pid/cgroup"
  # What systemd itself looks after stays its own.
  systemd-run --quiet --collect --unit=agent-main sleep 600
  not agentmon attach --pid "$(systemctl show -p MainPID --value agent-main.service)" 2>said.txt
  grep 'main process of a unit' said.txt
  systemctl stop agent-main.service
  as_dev agentmon attach --pid "$pid" --name attached --policy observe
  cat "/proc/$pid/cgroup"
  grep -q agentmon "/proc/$pid/cgroup"
  wait_for 60 sh -c 'agentmon timeline --session attached --kind exec | grep -q "ls /"'
  as_dev touch /home/dev/attached.stop
  wait_for 60 no_session attached
}

# What is asked meanwhile is denied, by the holder, and soon.
test_a_daemon_that_stands_still_holds_nobody_up_who_is_asked_about() {
  cat >/run/vm/still.sh <<'END'
cd "$1" || exit 1
n=0 worst=-1
while [ ! -e stop ]; do
  n=$((n + 1))
  read -r from _ </proc/uptime
  read -r line <../.profile
  echo x >file
  read -r to _ </proc/uptime
  took=$((${to%.*}${to#*.} - ${from%.*}${from#*.}))
  if [ $took -gt $worst ]; then worst=$took; fi
  echo "$n $worst" >>log
  sleep 0.1
done
END
  as_dev mkdir /home/dev/asked
  start_pulse
  systemd-run --quiet --collect --unit=agent-asked -p User=dev -p PAMName=login \
    agentmon run --name asked --policy default -- sh /run/vm/still.sh /home/dev/asked
  wait_for 60 test -s /home/dev/asked/log
  local pid; pid=$(main_pid)
  kill -STOP "$pid"
  sleep 8
  kill -CONT "$pid"
  # It goes on as before.
  local lines; lines=$(wc -l </home/dev/asked/log)
  wait_for 30 sh -c "[ \$(wc -l </home/dev/asked/log) -gt $((lines + 3)) ]"
  tail -n 3 /home/dev/asked/log
  [ "$(tail -n 1 /home/dev/asked/log | cut -d' ' -f2)" -lt $((300 + $(cat /run/vm/pulse))) ]
  [ "$(main_pid)" = "$pid" ]
  as_dev touch /home/dev/asked/stop
  wait_for 30 no_session asked
}

# The programs that judge connects, on this kernel: what a policy denies is not reached, by TCP, by UDP and in IPv6's
# spelling, also while there is no daemon.
test_a_denied_destination_is_not_reached_with_and_without_a_daemon() {  # every configuration
  cat >/home/dev/net.yaml <<'END2'
version: 1
name: net
posture: enforce
defaults: {command: allow, file_read: allow, file_write: allow, network: allow, unix_socket: allow, signal: allow}
network_rules:
  - {name: not-three, cidrs: [127.0.0.3], decision: deny}
END2
  cat >/run/vm/net.py <<'END2'
import errno, os, socket, time
def tell(act):
    try:
        act()
        return "done"
    except OSError as e:
        return errno.errorcode[e.errno]
def acts(address):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return [tell(lambda: socket.socket(family).connect((address, 9))),
            tell(lambda: socket.socket(family, socket.SOCK_DGRAM).sendto(b"x", (address, 9)))]
said = open("/home/dev/said.net", "wb", 0)
def say():
    for address in ("127.0.0.2", "127.0.0.3", "::ffff:127.0.0.3"):
        said.write(" ".join([address, *acts(address)]).encode() + b"\n")
say()
said.write(b"first\n")
while not os.path.exists("/home/dev/go.net"):
    time.sleep(0.2)
say()
said.write(b"second\n")
while not os.path.exists("/home/dev/end.net"):
    time.sleep(0.2)
END2
  rm -f /home/dev/*.net
  systemd-run --quiet --collect --unit=agent-net -p User=dev -p PAMName=login \
    agentmon run --name net-deny --policy /home/dev/net.yaml -- python3 /run/vm/net.py
  wait_for 30 grep -q first /home/dev/said.net
  agentmon session show net-deny | tee shown.txt
  grep -E 'network .*cgroup_bpf' shown.txt
  has_no -E 'network .*not active' shown.txt
  systemctl kill --signal=KILL agentmon.service
  systemctl stop agentmon.socket agentmon.service
  as_dev touch /home/dev/go.net
  wait_for 30 grep -q second /home/dev/said.net
  cat /home/dev/said.net
  [ "$(grep -c '^127.0.0.2 ECONNREFUSED done$' /home/dev/said.net)" = 2 ]
  [ "$(grep -c '^127.0.0.3 EPERM EPERM$' /home/dev/said.net)" = 2 ]
  [ "$(grep -c '^::ffff:127.0.0.3 EPERM EPERM$' /home/dev/said.net)" = 2 ]
  systemctl start agentmon.socket agentmon.service
  wait_for 30 responds
  agentmon timeline --session net-deny --enforced yes --kind connect | tee rows.txt
  grep not-three rows.txt
  as_dev touch /home/dev/end.net
  wait_for 30 not systemctl is-active agent-net.service
}
