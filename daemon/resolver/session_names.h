// Leads the questions of sessions to the resolver, where their policies stop something.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/policy/current.h"
#include "daemon/enforce/name_gate.h"
#include "daemon/resolver/gate_host.h"
#include "daemon/resolver/resolver.h"

namespace agentmon {

// Core thread, but for what says otherwise.
class SessionNames {
 public:
  // Gate and clock outlive it. on_dns: on the resolver's thread.
  static absl::StatusOr<std::unique_ptr<SessionNames>> Create(NameGate& gate, const Clock& clock,
                                                              GateHost::OnDns on_dns,
                                                              Resolver::Options options);

  // The kernel judges this session by this policy from now on. Where nothing of it is enforced the session
  // asks whom it names, as outside of sessions.
  absl::Status SetPolicy(uint64_t cgroup_id, std::shared_ptr<const policy::Snapshot> snapshot);
  void RemoveSession(uint64_t cgroup_id);

  // The name that a connection to this address was for, as far as one can tell: of those that have opened it,
  // the newest by which the policy lets the connection through, else the newest. Empty: none has.
  std::string NameOf(uint64_t cgroup_id, const policy::Subject& connection, int64_t boot_ns) const;

 private:
  struct Session {
    std::shared_ptr<policy::CurrentSnapshot> policy;
    ResolverTarget target;
  };
  SessionNames(NameGate& gate, std::unique_ptr<GateHost> host, std::unique_ptr<Resolver> resolver)
      : gate_(gate), host_(std::move(host)), resolver_(std::move(resolver)) {}

  NameGate& gate_;
  const std::unique_ptr<GateHost> host_;
  const std::unique_ptr<Resolver> resolver_;  // before its host
  std::map<uint64_t, Session> sessions_;
};

}  // namespace agentmon
