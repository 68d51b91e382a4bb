#!/usr/bin/env bash
# ./dev demo, after the build and as root: a private daemon, one session, its timeline, and no trace afterwards.
set -euo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
BIN=${AGENTMON_BUILD:-$ROOT/build}/bin

say() { printf '\n== %s\n' "$*"; }
cgroups() { awk '{ for (i = 6; i < NF; i++) if ($i == "-" && $(i + 1) == "cgroup2") { print $5; exit } }' /proc/self/mountinfo |
  while IFS= read -r mount; do find "$mount" -maxdepth 1 -name 'agentmon-*' | sort; done; }

CGROUPS_BEFORE=$(cgroups)
RUN='' WORK='' COPY='' USER_MADE='' DAEMON='' FAILED=0

reachable() { setpriv --reuid "$1" --regid "$2" --clear-groups test -x "$BIN/agentmon" 2>/dev/null; }

stop_daemon() {
  [ -n "$DAEMON" ] || return 0
  kill -TERM "$DAEMON" 2>/dev/null || true
  for _ in $(seq 100); do
    kill -0 "$DAEMON" 2>/dev/null || break
    sleep 0.1
  done
  if kill -0 "$DAEMON" 2>/dev/null; then
    echo "the daemon did not stop within 10 s" >&2
    FAILED=1
    kill -KILL "$DAEMON" 2>/dev/null || true
  fi
  wait "$DAEMON" 2>/dev/null || true
  DAEMON=''
}

clean_up() {
  stop_daemon
  [ -z "$USER_MADE" ] || userdel "$USER_MADE" 2>/dev/null || true
  local dir
  for dir in "$RUN" "$WORK" "$COPY"; do [ -z "$dir" ] || rm -rf "$dir"; done
}
trap clean_up EXIT
trap 'exit 130' INT TERM

for program in agentmond agentmon agentmon-shim; do
  [ -x "$BIN/$program" ] || { echo "$BIN/$program is not there: ./dev build" >&2; exit 1; }
done

# The agent runs as an ordinary user: who called sudo, else a user made for this, else nobody.
if [ -n "${SUDO_USER:-}" ] && [ "${SUDO_UID:-0}" != 0 ]; then
  AGENT=$SUDO_USER
elif command -v useradd >/dev/null && useradd --system --no-create-home --shell /usr/sbin/nologin "agentmon-demo-$$" 2>/dev/null; then
  AGENT=agentmon-demo-$$ USER_MADE=$AGENT
else
  AGENT=nobody
fi
AGENT_UID=$(id -u "$AGENT") AGENT_GID=$(id -g "$AGENT")

# A checkout in a private folder: the user gets a copy of the programs.
if ! reachable "$AGENT_UID" "$AGENT_GID"; then
  COPY=$(mktemp -d /var/lib/agentmon-demo-XXXXXX)
  chmod 755 "$COPY"
  cp "$BIN"/agentmon* "$COPY"
  setcap cap_sys_admin=ep "$COPY/agentmon-ns" 2>/dev/null || true
  BIN=$COPY
fi

RUN=$(mktemp -d /run/agentmon-demo-XXXXXX)
chmod 755 "$RUN"
mkdir -m 755 "$RUN/run"
mkdir -m 700 "$RUN/state"
WORK=$(mktemp -d "${TMPDIR:-/tmp}/agentmon-demo-XXXXXX")
chown "$AGENT_UID:$AGENT_GID" "$WORK"
# Also where cgroup v2 has no controllers.
printf 'log_level: warning\nlimits: {on_unavailable: warn}\n' >"$RUN/agentmond.yaml"
SOCKET=$RUN/run/agentmond.sock

say "starting a private agentmond"
"$BIN/agentmond" --config "$RUN/agentmond.yaml" --state-dir "$RUN/state" --runtime-dir "$RUN/run" 2>"$RUN/log" &
DAEMON=$!
for _ in $(seq 100); do
  if "$BIN/agentmon" --socket "$SOCKET" status >/dev/null 2>&1; then break; fi
  kill -0 "$DAEMON" 2>/dev/null || { cat "$RUN/log" >&2; echo "the daemon did not start" >&2; exit 1; }
  sleep 0.1
done

as_agent() { (cd "$WORK" && setpriv --reuid "$AGENT_UID" --regid "$AGENT_GID" --init-groups env HOME="$WORK" TMPDIR="$WORK" "$@"); }
agentmon() { "$BIN/agentmon" --socket "$SOCKET" "$@"; }
# show TITLE ARGS...: what the words after "agentmon" answer, below the very words.
show() {
  local title=$1 word line=agentmon; shift
  for word; do
    case $word in *[!a-zA-Z0-9_./-]*) line+=" '$word'" ;; *) line+=" $word" ;; esac
  done
  say "$title: $line"
  agentmon "$@" | cut -c 1-200 | sed -n 1,40p || FAILED=1
}

say "a session of user $AGENT: agentmon run -- sh workload.sh"
cp "$ROOT/tests/demo/workload.sh" "$WORK/workload.sh"
chmod 644 "$WORK/workload.sh"
as_agent "$BIN/agentmon" --socket "$SOCKET" run --name demo -- sh workload.sh || {
  echo "the workload ended with status $?" >&2
  FAILED=1
}

show "what it ran" timeline --session demo --tree --kind process
show "what it made in its folder, not below ('*' stays within a folder, '**' does not)" \
  timeline --session demo --kind create --kind mkdir --path "$WORK/project/*"
show "what became of its notes (kind? is what a program asked for)" \
  timeline --session demo --kind file --path "$WORK/project/notes/**"
show "what it reached" timeline --session demo --kind net --limit 20
say "how much was recorded of each kind: agentmon timeline --session demo --format json, counted"
agentmon timeline --session demo --format json | python3 -c '
import collections, json, sys
print(", ".join(f"{n} {kind}" for kind, n in collections.Counter(json.loads(line)["kind"] for line in sys.stdin).most_common()))' || FAILED=1
show "the daemon" status

say "stopping"
agentmon session stop --all >/dev/null 2>&1 || true
stop_daemon
if [ -s "$RUN/log" ]; then
  echo "the daemon's log:"
  cat "$RUN/log"
fi
TRACES=$RUN
clean_up
trap - EXIT

# The holder leaves when the daemon is gone; give it a moment.
for _ in $(seq 50); do
  PROCESSES=$(pgrep -f "$TRACES" || true)
  NEW_CGROUPS=$(comm -13 <(printf '%s\n' "$CGROUPS_BEFORE") <(cgroups))
  if [ -z "$PROCESSES$NEW_CGROUPS" ]; then break; fi
  sleep 0.1
done
left() { printf 'left behind: %s\n' "$*" >&2; FAILED=1; }
[ -z "$PROCESSES" ] || left "processes $PROCESSES"
[ -z "$NEW_CGROUPS" ] || left "cgroups $NEW_CGROUPS"
for dir in "$RUN" "$WORK" "$COPY"; do if [ -n "$dir" ] && [ -e "$dir" ]; then left "$dir"; fi; done
if [ -n "$USER_MADE" ] && id "$USER_MADE" >/dev/null 2>&1; then left "user $USER_MADE"; fi
if [ $FAILED = 0 ]; then
  say "nothing is left behind: no process, no cgroup, no folder, no user"
else
  exit 1
fi
