#!/usr/bin/env bash
# Runs scenario scripts (CNN.sh with a lib.sh beside them) against the built programs. The scripts are not part
# of this repository.
#   run_cases.sh [--uid UID] [FOLDER] [CASE...]      default folder: ../shared/cases beside the checkout
# Without CASE: those that this host can enforce. policies/CASE.yaml is the policy that a case names in words; in
# C77 it is the daemon's own. Needs root. With --uid the script runs as that user; cases that start the daemon
# themselves need root, and are left out then. Exit status 1 when a case fails.
set -uo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
BIN=${AGENTMON_BUILD:-$ROOT/build}/bin
USER_ID=''
if [ "${1:-}" = --uid ]; then
  USER_ID=$2
  shift 2
fi
FOLDER=${1:-$ROOT/../shared/cases}
[ $# = 0 ] || shift
CASES=("$@")
[ $# -gt 0 ] || CASES=(C01 C03 C05 C08 C12 C14 C17 C19 C20 C21 C28 C33 C35 C36 C40 C42 C45 C49 C51 C56 C59 C61 C62 C70 C72 C77)

if [ ! -f "$FOLDER/lib.sh" ]; then
  echo "run_cases.sh: no cases in $FOLDER: nothing was run"
  exit 0
fi
if [ "$(id -u)" != 0 ]; then
  echo "run_cases.sh: needs root" >&2
  exit 2
fi

BASE=$(mktemp -d /run/agentmon-cases-XXXXXX)
chmod 755 "$BASE"
mkdir -m 755 "$BASE/run" "$BASE/policies" "$BASE/home"
[ -z "$USER_ID" ] || chown "$USER_ID:$USER_ID" "$BASE/home"
DAEMON=''
stop() { [ -z "$DAEMON" ] || { kill "$DAEMON" 2>/dev/null; wait "$DAEMON" 2>/dev/null; DAEMON=''; }; }
trap 'stop; rm -rf "$BASE"' EXIT
await_daemon() {
  for _ in $(seq 100); do
    if "$AMCTL" status >/dev/null 2>&1; then break; fi
    sleep 0.1
  done
}
export -f await_daemon

export AMSTATE=$BASE/state AMDB=$BASE/state/agentmon.db
export AGENTMON_SOCKET=$BASE/run/agentmond.sock
export AMCTL=$BIN/agentmon
export TL="$BIN/agentmon timeline --format json"
AMSTART_WORDS="$BIN/agentmond --config $BASE/agentmond.yaml --state-dir $BASE/state --runtime-dir $BASE/run"
AS_USER=()
[ -z "$USER_ID" ] || AS_USER=(setpriv --reuid "$USER_ID" --regid "$USER_ID" --clear-groups env "HOME=$BASE/home")

result=0
for case in "${CASES[@]}"; do
  if [ ! -f "$FOLDER/$case.sh" ]; then
    echo "== $case: no such case"
    continue
  fi
  echo "== $case"
  if [ -n "$USER_ID" ] && grep -q need_daemon "$FOLDER/$case.sh"; then
    echo "   starts the daemon itself: only as root"
    continue
  fi
  rm -rf "$BASE/state" /tmp/am
  mkdir -m 700 "$BASE/state"
  export AMSTART='' AMPOLICY=$ROOT/tests/conformance/policies/$case.yaml
  [ -f "$AMPOLICY" ] || AMPOLICY=observe
  policy="--policy $AMPOLICY"
  printf 'log_level: info\nlimits: {on_unavailable: warn}\n' >"$BASE/agentmond.yaml"
  if [ "$case" = C77 ]; then
    cp "$AMPOLICY" "$BASE/policies/c77.yaml"
    AMPOLICY=$BASE/policies/c77.yaml policy=''
    printf 'policies_dir: %s\ndefault_policy: c77\n' "$BASE/policies" >>"$BASE/agentmond.yaml"
  fi
  export AM="$BIN/agentmon run --quiet --allow-root $policy --"
  inside=''
  if grep -q need_daemon "$FOLDER/$case.sh"; then
    AMSTART=$AMSTART_WORDS
  elif grep -q dnsnet "$FOLDER/$case.sh"; then
    inside=$AMSTART_WORDS  # names are looked up where the daemon is
  else
    $AMSTART_WORDS 2>>"$BASE/log" &
    DAEMON=$!
    await_daemon
  fi
  # shellcheck disable=SC2016  # what is the inner shell's own
  (cd "$FOLDER" && INSIDE=$inside LOG=$BASE/log timeout 600 unshare -mn bash -c '
    ip link set lo up 2>/dev/null
    [ -z "$INSIDE" ] || { $INSIDE 2>>"$LOG" & daemon=$!; await_daemon; }
    "$@"
    status=$?
    [ -z "$INSIDE" ] || { kill "$daemon"; wait "$daemon"; }
    exit $status' bash "${AS_USER[@]}" sh "./$case.sh") | sed 's/^/   /'
  status=${PIPESTATUS[0]}
  case $status in 0|77) ;; *) result=1 ;; esac
  echo "   $case: exit status $status"
  stop
done
exit $result
