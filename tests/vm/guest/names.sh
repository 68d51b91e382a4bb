# shellcheck shell=bash
# Who answers for names beside DNS: systemd-resolved by libnss-resolve, and nscd, as Debian ships them.

NAMES_POLICY=/home/dev/names.yaml
names_services() { # start | stop
  if [ "$1" = start ]; then
    systemctl unmask systemd-resolved.service nscd.service
    # Where nothing but the loopback is up, systemd-resolved says that the network is down.
    mkdir -p /run/systemd/network
    printf '[NetDev]\nName=vm0\nKind=dummy\n' >/run/systemd/network/vm0.netdev
    printf '[Match]\nName=vm0\n[Network]\nAddress=192.0.2.1/24\n' >/run/systemd/network/vm0.network
    systemctl start systemd-networkd.service
    # dnsmasq has the names, systemd-resolved asks it, and its stub is what agentmon asks.
    mkdir -p /run/systemd/resolved.conf.d
    printf '[Resolve]\nDNS=127.0.0.1\nFallbackDNS=\nDNSSEC=no\nLLMNR=no\nMulticastDNS=no\n' >/run/systemd/resolved.conf.d/vm.conf
    systemd-run --quiet --collect --unit=vm-dns dnsmasq --keep-in-foreground --conf-file=/dev/null --no-resolv --no-hosts \
      --listen-address=127.0.0.1 --bind-interfaces --local-ttl=60 --user=root --pid-file= \
      --host-record=open.names.test,198.51.100.1 --host-record=closed.names.test,198.51.100.2
    systemctl start systemd-resolved.service nscd.service
    wait_for 30 test -S /run/systemd/resolve/io.systemd.Resolve
    wait_for 30 test -S /run/nscd/socket
    cp -P /etc/resolv.conf /run/vm/resolv.conf.before || true
    ln -sf /run/systemd/resolve/stub-resolv.conf /etc/resolv.conf
  else
    networkctl delete vm0 || true
    systemctl stop systemd-networkd.socket systemd-networkd.service vm-dns.service systemd-resolved.service nscd.service nscd.socket || true
    systemctl mask systemd-resolved.service nscd.service
    rm -f /etc/resolv.conf
    cp -P /run/vm/resolv.conf.before /etc/resolv.conf || true
  fi
}
knows() { getent hosts "$1" | grep -F "$2"; }

test_names_of_a_session_are_asked_of_dns_alone() {  # beside others
  wait_for 60 responds
  names_services start
  grep '^hosts:.*resolve \[!UNAVAIL=return\].*dns' /etc/nsswitch.conf
  # The control, outside of sessions: both names are there, by each of the two.
  wait_for 30 knows open.names.test 198.51.100.1
  wait_for 30 knows closed.names.test 198.51.100.2
  as_dev getent -s resolve hosts closed.names.test | grep -F 198.51.100.2
  nscd -g | sed -n '/^hosts cache/,$p' | grep -E ' [1-9][0-9]* +cache (hits|misses) on positive|[1-9][0-9]* +current number of cached'
  cat >"$NAMES_POLICY" <<'END'
version: 1
name: names
enforcement: required
defaults: {file_write: allow, command: allow, network: deny, unix_socket: allow, signal: allow}
network_rules:
  - {name: open, domains: [open.names.test], decision: allow}
END
  chmod 644 "$NAMES_POLICY"
  # shellcheck disable=SC2016
  as_dev agentmon run --name names --policy "$NAMES_POLICY" -- sh -c '
    getent hosts open.names.test; echo "open $?"
    getent hosts closed.names.test; echo "closed $?"
    getent -s resolve hosts open.names.test; echo "resolve alone $?"
    getent passwd dev; echo "user $?"' >said.txt 2>&1 || { cat said.txt; false; }
  cat said.txt
  agentmon timeline --session names --format json >rows.json
  agentmon session show names
  names_services stop
  grep '^198.51.100.1 .*open.names.test' said.txt
  grep -x 'open 0' said.txt
  grep -x 'closed 2' said.txt
  grep -x 'resolve alone 2' said.txt
  grep '^dev:x:1000' said.txt
  has_no 198.51.100.2 said.txt
  for socket in /run/systemd/resolve/io.systemd.Resolve /run/nscd/socket; do
    grep '"kind":"unix_connect"' rows.json | grep -F "\"$socket\"" | tee found.json
    grep '"rule":"name-services"' found.json | grep '"mechanism":"bpf_lsm"' | grep '"enforced":true' | has '"errno_name":"EACCES"'
  done
  grep '"kind":"dns"' rows.json | tee found.json
  grep '"name":"open.names.test"' found.json | has '"verdict":"allow"'
  grep '"name":"closed.names.test"' found.json | grep '"verdict":"deny"' | has '"mechanism":"resolver"'
}
