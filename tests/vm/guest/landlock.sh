# shellcheck shell=bash
# Landlock's scopes, which Debian 13's kernel has (6.12, ABI 6) and Debian 12's has not.

test_landlock_scopes_keep_signals_inside() {  # debian13, beside others
  # landlock_create_ruleset asked for its version
  [ "$(python3 -c 'import ctypes; print(ctypes.CDLL(None).syscall(444, None, 0, 1))')" -ge 6 ]
  cat >/home/dev/scope.yaml <<'END'
version: 1
name: scope
enforcement: required
defaults: {file_write: allow, command: allow, network: allow, unix_socket: allow, signal: allow}
signal_rules:
  - {name: outside, target: {type: external}, decision: deny}
END
  chmod 644 /home/dev/scope.yaml
  systemd-run --quiet --collect --unit=outside -p User=dev sleep 600
  cat >/run/vm/scope.py <<'END'
import errno, os, signal, subprocess, sys

def attempt(label, act):
    try:
        act()
        print(label, "ok", flush=True)
    except OSError as e:
        print(label, errno.errorcode[e.errno], flush=True)

outside, child = int(sys.argv[1]), subprocess.Popen(["sleep", "1000"])
attempt("outside", lambda: os.kill(outside, signal.SIGURG))
attempt("pidfd", lambda: signal.pidfd_send_signal(os.pidfd_open(outside), signal.SIGURG))
attempt("root", lambda: os.readlink(f"/proc/{outside}/root"))
attempt("own", lambda: os.kill(child.pid, signal.SIGTERM))
print("child", child.wait(), flush=True)
END
  local pid; pid=$(systemctl show -p MainPID --value outside.service)
  as_dev agentmon run --name landlock --policy /home/dev/scope.yaml -- \
    sh -c "python3 /run/vm/scope.py $pid; agentmon session show landlock --json" >said.txt 2>&1 || { cat said.txt; false; }
  cat said.txt
  for act in outside pidfd; do grep -x "$act EPERM" said.txt; done
  grep -x 'root EACCES' said.txt
  grep -x 'own ok' said.txt
  grep -x 'child -15' said.txt
  enforced_by said.txt outside landlock
  # Outside of the session all of it goes through.
  as_dev python3 /run/vm/scope.py "$pid" | tee bare.txt
  [ "$(grep -c ' ok$' bare.txt)" = 4 ]
  systemctl stop outside.service
}
