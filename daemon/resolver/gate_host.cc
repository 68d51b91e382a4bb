#include "daemon/resolver/gate_host.h"

#include "common/base/log.h"
#include "common/base/status.h"

namespace agentmon {

absl::StatusOr<std::unique_ptr<GateHost>> GateHost::Create(NameGate& gate, const Clock& clock, OnDns on_dns) {
  ASSIGN_OR_RETURN(SocketLookup lookup, SocketLookup::Create());
  return std::unique_ptr<GateHost>(new GateHost(gate, clock, std::move(lookup), std::move(on_dns)));
}

std::optional<DnsClient> GateHost::Identify(uint64_t cgroup_id, const DnsPath& path) {
  const auto socket = lookup_.Find(path.protocol, path.listener, path.client);
  if (!socket.ok()) {
    if (!absl::IsNotFound(socket.status())) LogWarning("who asks for a name: ", socket.status().message());
    return std::nullopt;
  }
  const auto led = gate_.FindRedirected(socket->cookie);
  if (!led.ok() || led->cgroup_id != cgroup_id) return std::nullopt;
  DnsClient client;
  client.pid = led->pid;
  client.uid = socket->uid;
  client.server = led->server;
  client.server_port = led->port;
  return client;
}

}  // namespace agentmon
