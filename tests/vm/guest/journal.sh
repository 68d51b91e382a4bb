# shellcheck shell=bash
# What the system's journal has of the daemon and of sessions.

id_of() { agentmon session show "$1" --json | sed -n 's/.*"id": *"\([^"]*\)".*/\1/p' | head -n 1; }

test_a_denial_is_found_in_the_journal_by_its_fields() {  # every configuration, beside others
  as_dev sh -c 'cd; echo SECRET=1 >.env; agentmon run --name said --policy default -- cat .env || true; rm .env'
  local id; id=$(id_of said)
  [ -n "$id" ]
  agentmon timeline --session said --verdict deny
  wait_for 10 sh -c "journalctl --no-pager -o cat VERDICT=deny SESSION=$id | grep -q ."
  journalctl --no-pager -o export VERDICT=deny "SESSION=$id" | tee entry.txt
  grep -qx 'PATH=/home/dev/.env' entry.txt
  grep -qx 'SESSION_UID=1000' entry.txt
  grep -qE '^ENFORCED=(yes|no)$' entry.txt
  grep -q '^RULE=.' entry.txt
  grep -qx 'PRIORITY=4' entry.txt
  grep -qx '_SYSTEMD_UNIT=agentmon.service' entry.txt
  has_no . <(journalctl --no-pager -o cat -q VERDICT=deny SESSION=nosuchsession)
}

test_the_log_has_priorities_and_the_heads_of_the_chain() {
  systemctl restart agentmon.service
  wait_for 20 sh -c 'journalctl --no-pager -o cat -u agentmon.service SYSLOG_IDENTIFIER=agentmond PRIORITY=6 |
    grep -qE "chain head: batch [0-9]+ seq [0-9]+ sha256 [0-9a-f]{64}"'
  has_no '^agentmond: ' <(unit_log)
}
