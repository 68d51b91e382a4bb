# shellcheck shell=bash
# The floor's allow_privileges: set-uid programs work, and the kernel's own rules hold whoever they run as.

# A session of dev's in which programs run as root by a set-uid copy; said.txt is what they said.
run_as_root_would() { # NAME
  as_dev env LC_ALL=C agentmon run --name "$1" --policy "$LSM_POLICY" -- sh /run/vm/gain.sh >said.txt 2>&1 || { cat said.txt; false; }
  cat said.txt
}

test_set_uid_programs_work_only_where_the_floor_says_so() {
  wait_for 60 responds
  install -m 4755 /bin/cat /usr/local/bin/rootcat
  install -m 4755 /usr/bin/chmod /usr/local/bin/rootchmod
  echo OFROOT >/root/secret
  chmod 600 /root/secret
  # shellcheck disable=SC2016
  as_dev sh -c 'rm -rf ~/lsm; mkdir -p ~/lsm/closed ~/lsm/open; cd ~/lsm; for f in closed/f open/f; do echo TEXT-$f >$f; done'
  LSM_POLICY=/home/dev/gain.yaml
  cat >"$LSM_POLICY" <<'END'
version: 1
name: gain
defaults: {file_write: allow, command: allow, network: allow, unix_socket: allow, signal: allow}
file_rules:
  - {name: closed, paths: ["/home/dev/lsm/closed/**"], decision: deny}
network_rules:
  - {name: no-net, cidrs: [127.0.0.5/32], decision: deny}
END
  chmod 644 "$LSM_POLICY"
  cat >/run/vm/gain.sh <<'END'
rootcat /root/secret
cd ~/lsm
for f in closed/f open/f; do rootcat $f; rootchmod 666 $f && echo "CHANGED $f"; done
python3 -c '
import socket
try: socket.create_connection(("127.0.0.5", 9), 5)
except OSError as e: print("connect", e.errno)'
agentmon session show --json "$AGENTMON_SESSION" >shown.json
END
  # The control: without the floor's word nothing is gained.
  run_as_root_would gain-no
  has_no OFROOT said.txt
  grep '/root/secret: Permission denied' said.txt

  echo '{version: 1, name: sudo, allow_privileges: true, enforcement: best_effort}' >/etc/agentmon/floor.d/sudo.yaml
  systemctl reload agentmon.service
  run_as_root_would gain-yes
  grep -x OFROOT said.txt
  grep 'closed/f: Permission denied' said.txt
  grep -x 'TEXT-open/f' said.txt
  grep -x 'CHANGED open/f' said.txt
  has_no 'TEXT-closed/f\|CHANGED closed' said.txt
  grep -x 'connect 1' said.txt
  agentmon session show gain-yes | tee shown.txt
  grep 'no_new_privs .*not active: allow_privileges: set-uid programs have' shown.txt
  grep 'lsm_change .*active' shown.txt
  enforced_by /home/dev/lsm/shown.json closed bpf_lsm
  agentmon timeline --session gain-yes --enforced yes --format json | grep '"mechanism":"bpf_lsm"' | grep '"rule":"closed"' >found.json
  grep '"uid":1000' found.json # the caller's, with root's rights
  agentmon timeline --session gain-yes --format json | has 'set-uid programs have'

  # What the policy itself takes away stays away, and nobody but the floor gives it.
  echo 'allow_privileges: false' >>"$LSM_POLICY"
  run_as_root_would gain-taken
  has_no OFROOT said.txt
  rm /etc/agentmon/floor.d/sudo.yaml
  systemctl reload agentmon.service
  sed -i 's/allow_privileges: false/allow_privileges: true/' "$LSM_POLICY"
  not as_dev agentmon run --policy "$LSM_POLICY" -- true 2>said.txt
  cat said.txt
  grep "only the administrator's floor" said.txt
}
