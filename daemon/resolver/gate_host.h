// The resolver's side of the network rules: whose a socket is, and what a name opens.
#pragma once

#include <functional>
#include <utility>

#include "common/kernel/socket_lookup.h"
#include "daemon/enforce/name_gate.h"
#include "daemon/resolver/host_addresses.h"
#include "daemon/resolver/resolver_host.h"

namespace agentmon {

// The resolver's thread, once it runs.
class GateHost : public ResolverHost {
 public:
  // Any thread takes an event; must not wait.
  using OnDns =
      std::function<void(uint64_t cgroup_id, const DnsClient& client, int64_t boot_ns, const Event& event)>;

  // Gate and clock outlive it.
  static absl::StatusOr<std::unique_ptr<GateHost>> Create(NameGate& gate, const Clock& clock, OnDns on_dns);

  std::optional<DnsClient> Identify(uint64_t cgroup_id, const DnsPath& path) override;
  absl::Status Open(uint64_t cgroup_id, const std::string& name, const policy::Address& address,
                    int64_t until_boot_ns) override {
    return gate_.OpenAddress(cgroup_id, name, address, until_boot_ns);
  }
  void Settle(uint64_t cgroup_id) override { gate_.Settle(cgroup_id); }
  bool IsOwn(const policy::Address& address) override { return own_.Has(address); }
  void OnEvent(uint64_t cgroup_id, const DnsClient& client, int64_t boot_ns, const Event& event) override {
    on_dns_(cgroup_id, client, boot_ns, event);
  }

 private:
  GateHost(NameGate& gate, const Clock& clock, SocketLookup lookup, OnDns on_dns)
      : gate_(gate), lookup_(std::move(lookup)), own_(clock), on_dns_(std::move(on_dns)) {}

  NameGate& gate_;
  SocketLookup lookup_;
  HostAddresses own_;
  const OnDns on_dns_;
};

}  // namespace agentmon
