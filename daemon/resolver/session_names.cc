#include "daemon/resolver/session_names.h"

#include "common/base/log.h"
#include "common/base/status.h"
#include "common/policy/evaluate.h"
#include "daemon/policy/gate.h"

namespace agentmon {
namespace {

ResolverTarget TargetOf(const DnsPorts& ports) {
  ResolverTarget target;
  target.v4 = *policy::ParseAddress("127.0.0.1");
  target.v6 = *policy::ParseAddress("::1");
  target.v4_port = ports.port4;
  target.v6_port = ports.port6;
  return target;
}

}  // namespace

absl::StatusOr<std::unique_ptr<SessionNames>> SessionNames::Create(NameGate& gate, const Clock& clock,
                                                                   GateHost::OnDns on_dns,
                                                                   Resolver::Options options) {
  ASSIGN_OR_RETURN(std::unique_ptr<GateHost> host, GateHost::Create(gate, clock, std::move(on_dns)));
  ASSIGN_OR_RETURN(std::unique_ptr<Resolver> resolver, Resolver::Start(clock, *host, std::move(options)));
  return std::unique_ptr<SessionNames>(new SessionNames(gate, std::move(host), std::move(resolver)));
}

absl::Status SessionNames::SetPolicy(uint64_t cgroup_id, std::shared_ptr<const policy::Snapshot> snapshot) {
  const bool leads = Enforces(*snapshot);
  auto it = sessions_.find(cgroup_id);
  if (it != sessions_.end()) {
    it->second.policy->Switch(std::move(snapshot));
    return gate_.SetResolver(cgroup_id, leads ? it->second.target : ResolverTarget());
  }
  if (!leads) return absl::OkStatus();
  auto current = std::make_shared<policy::CurrentSnapshot>(std::move(snapshot));
  const auto ports = resolver_->AddSession(cgroup_id, [current] { return current->Get(); });
  if (!ports.ok()) return WithContext(ports.status(), "look up names");
  const ResolverTarget target = TargetOf(*ports);
  sessions_[cgroup_id] = Session{std::move(current), target};
  const absl::Status led = gate_.SetResolver(cgroup_id, target);
  if (!led.ok()) RemoveSession(cgroup_id);
  return led;
}

void SessionNames::RemoveSession(uint64_t cgroup_id) {
  if (sessions_.erase(cgroup_id) > 0) resolver_->RemoveSession(cgroup_id);
}

std::string SessionNames::NameOf(uint64_t cgroup_id, const policy::Subject& connection,
                                 int64_t boot_ns) const {
  const auto session = sessions_.find(cgroup_id);
  if (session == sessions_.end() || !connection.address.has_value()) return "";
  const std::vector<std::string> names =
      resolver_->NamesOf(cgroup_id, policy::Reached(*connection.address), boot_ns);
  if (names.empty()) return "";
  const std::shared_ptr<const policy::Snapshot> snapshot = session->second.policy->Get();
  for (const std::string& name : names) {
    policy::Subject named = connection;
    named.name = name;
    if (!policy::Evaluate(*snapshot, named, policy::EvaluateOptions()).Stops()) return name;
  }
  return names.front();
}

}  // namespace agentmon
