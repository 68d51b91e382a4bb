#include "daemon/enforce/network_gate.h"

#include <netinet/in.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/policy/evaluate.h"
#include "common/policy/policy_proto.h"

namespace agentmon {
namespace {

// A program that was there when something was replaced has ended by then, whatever preempted it, and the
// records that it made have been read.
constexpr int64_t kGraceNs = 10'000'000'000;
constexpr int64_t kPruneEveryNs = 30'000'000'000;
constexpr size_t kAddressesPerSession = 2048;
constexpr size_t kNamesPerAddress = 32;

absl::Status NotJudged() { return absl::NotFoundError("the kernel judges no connects of this session"); }

am_net_opened_key OpenedKey(uint64_t cgroup_id, uint32_t policy, const policy::Address& address) {
  am_net_opened_key key{};
  key.cgroup_id = cgroup_id;
  key.policy = policy;
  key.family = address.v6 ? AF_INET6 : AF_INET;
  std::copy(address.bytes.begin(), address.bytes.end(), key.address);
  return key;
}

void DropExpired(std::vector<OpenName>& names, int64_t now) {
  names.erase(
      std::remove_if(names.begin(), names.end(), [&](const OpenName& n) { return n.until_ns <= now; }),
      names.end());
}

}  // namespace

absl::StatusOr<std::unique_ptr<NetworkGate>> NetworkGate::Create(const NetworkMapFds& fds,
                                                                 const Clock& clock) {
  ASSIGN_OR_RETURN(std::shared_ptr<NetworkMaps> maps, NetworkMaps::Create(fds));
  return std::unique_ptr<NetworkGate>(new NetworkGate(std::move(maps), clock));
}

NetworkGate::~NetworkGate() {
  absl::MutexLock lock(&mutex_);
  maps_->LeaveAsIs();
}

void NetworkGate::SetBackstop(NetworkBackstop* backstop) {
  absl::MutexLock lock(&mutex_);
  backstop_ = backstop;
}

void NetworkGate::Mirror(uint64_t cgroup_id, const Session& session) {
  if (backstop_ == nullptr) return;
  const Version& version = session.current;
  NetworkBackstop::OpenedAddresses opened;
  for (const auto& [address, names] : session.names) opened[address] = OpenedBy(version, address, names);
  backstop_->SetPolicy(cgroup_id, {version.stored->policy->number(), version.stored->rules, session.closed},
                       std::move(opened));
}

void NetworkGate::MirrorName(uint64_t cgroup_id, const Session& session, const policy::Address& address) {
  const auto names = session.names.find(address);
  if (backstop_ == nullptr || names == session.names.end()) return;
  backstop_->SetName(cgroup_id, address, OpenedBy(session.current, address, names->second));
}

NetworkBackstop::OpenedAddress NetworkGate::OpenedBy(const Version& version, const policy::Address& address,
                                                     const std::vector<OpenName>& names) const {
  NetworkBackstop::OpenedAddress out;
  const auto list = ListForNames(*version.stored->rules, *version.snapshot, address, names);
  if (!list.ok()) return out;  // nor could the programs be told
  out.ports = PortsByName(*list, ListOf(*version.stored->rules, address),
                          static_cast<uint64_t>(std::max<int64_t>(clock_.BootNs(), 0)));
  for (const OpenName& name : names) out.until_ns = std::max(out.until_ns, name.until_ns);
  return out;
}

void NetworkGate::Settle(uint64_t cgroup_id) {
  NetworkBackstop* backstop = nullptr;
  {
    absl::MutexLock lock(&mutex_);
    backstop = backstop_;
  }
  if (backstop != nullptr) backstop->Settle(cgroup_id);
}

absl::StatusOr<std::shared_ptr<const NetworkGate::Stored>> NetworkGate::Store(NetworkRules rules) {
  std::string key = rules.Fingerprint();
  std::weak_ptr<const Stored>& known = stored_[key];
  if (std::shared_ptr<const Stored> same = known.lock()) return same;
  auto stored = std::make_shared<Stored>();
  auto policy = maps_->Write(rules);
  if (!policy.ok()) {
    stored_.erase(key);
    return policy.status();
  }
  stored->policy = std::move(*policy);
  stored->rules = std::make_shared<const NetworkRules>(std::move(rules));
  known = stored;
  return stored;
}

absl::Status NetworkGate::SetPolicy(uint64_t cgroup_id, std::shared_ptr<const policy::Snapshot> snapshot) {
  absl::StatusOr<NetworkRules> rules = CompileNetworkRules(*snapshot);
  absl::MutexLock lock(&mutex_);
  Sweep();
  const absl::Status done =
      rules.ok() ? SetRules(cgroup_id, std::move(*rules), std::move(snapshot)) : rules.status();
  const auto it = sessions_.find(cgroup_id);
  if (it == sessions_.end()) return done;
  if (!done.ok()) {
    it->second.closed = true;
    Point(it->second);
  }
  Mirror(cgroup_id, it->second);
  return done;
}

absl::Status NetworkGate::SetRules(uint64_t cgroup_id, NetworkRules rules,
                                   std::shared_ptr<const policy::Snapshot> snapshot) {
  ASSIGN_OR_RETURN(std::shared_ptr<const Stored> stored, Store(std::move(rules)));
  Version version{std::move(stored), std::move(snapshot), 0};
  if (const auto it = sessions_.find(cgroup_id); it != sessions_.end())
    return Switch(cgroup_id, it->second, std::move(version));
  Session session;
  session.current = std::move(version);
  // One of an earlier daemon runs already: with its first look it sees its whole policy.
  ASSIGN_OR_RETURN(session.slot,
                   maps_->AddSession(cgroup_id, session.current.stored->policy->number(), FlagsOf(session)));
  sessions_[cgroup_id] = std::move(session);
  return absl::OkStatus();
}

// The first word of the session's place: what a program sees of all this.
void NetworkGate::Point(Session& session) {
  maps_->SetPolicy(session.slot, session.current.stored->policy->number(), FlagsOf(session));
}

uint32_t NetworkGate::FlagsOf(const Session& session) {
  const NetworkRules& rules = *session.current.stored->rules;
  uint32_t flags = session.closed ? AM_NET_SESSION_CLOSED : 0;
  if (!session.opened.empty()) flags |= AM_NET_SESSION_NAMES;
  if (rules.stops) flags |= AM_NET_SESSION_RAW;
  if (rules.stops_unsaid) flags |= AM_NET_SESSION_ECHO;
  return flags;
}

absl::Status NetworkGate::Switch(uint64_t cgroup_id, Session& session, Version version) {
  const bool same = version.stored == session.current.stored;
  if (backstop_ != nullptr && (!same || session.closed)) backstop_->Pause(cgroup_id);
  if (same) {  // other names of rules, perhaps
    session.current.snapshot = std::move(version.snapshot);
    session.closed = false;
    Point(session);
    return absl::OkStatus();
  }
  Prune(session, clock_.BootNs());
  std::map<policy::Address, std::shared_ptr<NetworkMaps::Opened>> opened;
  for (const auto& [address, names] : session.names) {
    auto made = MakeOpened(cgroup_id, version, address, names);
    if (!made.ok()) {
      for (const auto& [unused, entry] : opened) entry->Close();
      return made.status();
    }
    if (*made != nullptr) opened[address] = std::move(*made);
  }
  session.opened.swap(opened);
  std::swap(session.current, version);
  session.closed = false;
  Point(session);
  for (const auto& [address, entry] : opened) {
    entry->Close();
    Retire(entry);
  }
  version.until_ns = clock_.BootNs();
  session.past.push_back(std::move(version));
  return absl::OkStatus();
}

void NetworkGate::CloseOpened(Session& session) {
  for (const auto& [address, entry] : session.opened) {
    entry->Close();
    Retire(entry);
  }
  session.opened.clear();
}

void NetworkGate::RemoveSession(uint64_t cgroup_id) {
  absl::MutexLock lock(&mutex_);
  const auto it = sessions_.find(cgroup_id);
  if (it == sessions_.end()) return;
  if (backstop_ != nullptr) backstop_->RemoveSession(cgroup_id);
  CloseOpened(it->second);
  maps_->RemoveSession(cgroup_id, it->second.slot);
  Retire(it->second.current.stored);
  for (const Version& version : it->second.past) Retire(version.stored);
  sessions_.erase(it);
  Sweep();
}

bool NetworkGate::Judges(uint64_t cgroup_id) const {
  absl::MutexLock lock(&mutex_);
  return sessions_.count(cgroup_id) != 0;
}

size_t NetworkGate::sessions() const {
  absl::MutexLock lock(&mutex_);
  return sessions_.size();
}

bool NetworkGate::Stops(uint64_t cgroup_id) const {
  absl::MutexLock lock(&mutex_);
  const auto it = sessions_.find(cgroup_id);
  return it != sessions_.end() && it->second.current.stored->rules->stops;
}

size_t NetworkGate::rules_in_use() const {
  absl::MutexLock lock(&mutex_);
  return maps_->rules_in_use();
}

void NetworkGate::Retire(std::shared_ptr<const void> what) {
  retired_.emplace_back(clock_.BootNs(), std::move(what));
}

void NetworkGate::Sweep() {
  const int64_t before = clock_.BootNs() - kGraceNs;
  while (!retired_.empty() && retired_.front().first < before) retired_.pop_front();
  for (auto& [cgroup_id, session] : sessions_) {
    while (!session.past.empty() && session.past.front().until_ns < before) session.past.pop_front();
  }
  for (auto it = stored_.begin(); it != stored_.end();) {
    it = it->second.expired() ? stored_.erase(it) : std::next(it);
  }
}

// Null: the names say nothing of the address.
absl::StatusOr<std::shared_ptr<NetworkMaps::Opened>> NetworkGate::MakeOpened(
    uint64_t cgroup_id, const Version& version, const policy::Address& address,
    const std::vector<OpenName>& names) {
  const uint32_t policy = version.stored->policy->number();
  ASSIGN_OR_RETURN(const std::vector<am_net_rule> list,
                   ListForNames(*version.stored->rules, *version.snapshot, address, names));
  const bool by_name =
      std::any_of(list.begin(), list.end(), [](const am_net_rule& r) { return r.until_ns != 0; });
  if (!by_name) return std::shared_ptr<NetworkMaps::Opened>();
  ASSIGN_OR_RETURN(std::shared_ptr<NetworkMaps::Run> run, maps_->WriteRun(policy, list));
  return maps_->Open(OpenedKey(cgroup_id, policy, address), std::move(run));
}

// After session.names[address] has changed.
absl::Status NetworkGate::Publish(uint64_t cgroup_id, Session& session, const policy::Address& address) {
  const auto names = session.names.find(address);
  const auto opened = session.opened.find(address);
  if (opened == session.opened.end()) {
    if (names == session.names.end()) return absl::OkStatus();
    ASSIGN_OR_RETURN(auto made, MakeOpened(cgroup_id, session.current, address, names->second));
    if (made == nullptr) return absl::OkStatus();
    session.opened[address] = std::move(made);
    Point(session);
    return absl::OkStatus();
  }
  if (names == session.names.end()) {
    opened->second->Close();
    Retire(opened->second);
    session.opened.erase(opened);
    return absl::OkStatus();
  }
  const Version& version = session.current;
  ASSIGN_OR_RETURN(std::vector<am_net_rule> list,
                   ListForNames(*version.stored->rules, *version.snapshot, address, names->second));
  ASSIGN_OR_RETURN(std::shared_ptr<NetworkMaps::Run> run,
                   maps_->WriteRun(version.stored->policy->number(), std::move(list)));
  Retire(opened->second->Switch(std::move(run)));
  return absl::OkStatus();
}

void NetworkGate::Prune(Session& session, int64_t now) {
  session.pruned_ns = now;
  for (auto it = session.names.begin(); it != session.names.end();) {
    DropExpired(it->second, now);
    if (!it->second.empty()) {
      ++it;
      continue;
    }
    if (const auto opened = session.opened.find(it->first); opened != session.opened.end()) {
      opened->second->Close();  // its rules by name are over anyway
      Retire(opened->second);
      session.opened.erase(opened);
    }
    it = session.names.erase(it);
  }
}

absl::Status NetworkGate::OpenAddress(uint64_t cgroup_id, absl::string_view name,
                                      const policy::Address& address, int64_t expires_boot_ns) {
  const std::optional<std::string> normalised = policy::NormalizeDomain(name);
  if (!normalised) return absl::InvalidArgumentError("not a host name");
  const policy::Address reached = policy::Reached(address);
  absl::MutexLock lock(&mutex_);
  const auto it = sessions_.find(cgroup_id);
  if (it == sessions_.end()) return NotJudged();
  Session& session = it->second;
  Sweep();
  const int64_t now = clock_.BootNs();
  const bool full = session.names.size() >= kAddressesPerSession && session.names.count(reached) == 0;
  if (full || now - session.pruned_ns > kPruneEveryNs) Prune(session, now);
  if (session.names.size() >= kAddressesPerSession && session.names.count(reached) == 0)
    return absl::ResourceExhaustedError("the session has too many addresses open");
  const std::vector<OpenName> before = session.names[reached];
  std::vector<OpenName>& names = session.names[reached];
  DropExpired(names, now);
  const auto known =
      std::find_if(names.begin(), names.end(), [&](const OpenName& n) { return n.name == *normalised; });
  absl::Status published;
  if (known != names.end()) {
    known->until_ns = std::max(known->until_ns, expires_boot_ns);
  } else {
    // Many names of one content network: those that would go first make room.
    if (names.size() >= kNamesPerAddress) {
      names.erase(std::min_element(names.begin(), names.end(), [](const OpenName& a, const OpenName& b) {
        return a.until_ns < b.until_ns;
      }));
    }
    names.push_back({*normalised, expires_boot_ns});
  }
  if (published.ok()) published = Publish(cgroup_id, session, reached);
  if (published.ok()) {
    MirrorName(cgroup_id, session, reached);
    return published;
  }
  if (before.empty())
    session.names.erase(reached);
  else
    names = before;
  return published;
}

void NetworkGate::CloseName(uint64_t cgroup_id, absl::string_view name) {
  const std::optional<std::string> normalised = policy::NormalizeDomain(name);
  absl::MutexLock lock(&mutex_);
  const auto it = sessions_.find(cgroup_id);
  if (it == sessions_.end() || !normalised) return;
  Session& session = it->second;
  std::vector<policy::Address> changed;
  for (auto& [address, names] : session.names) {
    const auto gone =
        std::remove_if(names.begin(), names.end(), [&](const OpenName& n) { return n.name == *normalised; });
    if (gone == names.end()) continue;
    names.erase(gone, names.end());
    changed.push_back(address);
  }
  for (const policy::Address& address : changed) {
    if (session.names[address].empty()) session.names.erase(address);
    // No room for the shorter list: then the address is judged by itself, which opens nothing.
    if (Publish(cgroup_id, session, address).ok()) continue;
    session.names.erase(address);
    Publish(cgroup_id, session, address).IgnoreError();
  }
  if (!changed.empty()) Mirror(cgroup_id, session);
}

absl::Status NetworkGate::SetResolver(uint64_t cgroup_id, const ResolverTarget& target) {
  absl::MutexLock lock(&mutex_);
  const auto it = sessions_.find(cgroup_id);
  if (it == sessions_.end()) return NotJudged();
  maps_->SetResolver(it->second.slot, target.v4.bytes.data(), target.v4_port, target.v6.bytes.data(),
                     target.v6_port);
  if (backstop_ != nullptr) backstop_->SetResolver(cgroup_id, target);
  return absl::OkStatus();
}

absl::StatusOr<RedirectedSocket> NetworkGate::FindRedirected(uint64_t cookie) const {
  absl::MutexLock lock(&mutex_);
  am_net_redirected found{};
  if (!maps_->FindRedirected(cookie, &found)) return absl::NotFoundError("this socket was not redirected");
  RedirectedSocket out;
  out.cgroup_id = found.cgroup_id;
  out.server =
      found.family == AF_INET6 ? policy::FromBytes16(found.server) : policy::FromBytes4(found.server);
  out.port = found.port;
  out.pid = found.pid;
  return out;
}

const NetworkGate::Version* NetworkGate::FindVersion(uint64_t cgroup_id, uint32_t policy) const {
  const auto it = sessions_.find(cgroup_id);
  if (it == sessions_.end()) return nullptr;
  const Session& session = it->second;
  if (session.current.stored->policy->number() == policy) return &session.current;
  for (auto version = session.past.rbegin(); version != session.past.rend(); ++version) {
    if (version->stored->policy->number() == policy) return &*version;
  }
  return nullptr;
}

std::shared_ptr<const policy::Snapshot> NetworkGate::SnapshotOf(uint64_t cgroup_id, uint32_t policy) const {
  absl::MutexLock lock(&mutex_);
  const Version* version = FindVersion(cgroup_id, policy);
  return version == nullptr ? nullptr : version->snapshot;
}

v1::Judgement NetworkGate::Describe(uint64_t cgroup_id, const KernelVerdict& verdict,
                                    const policy::Subject& subject) const {
  const std::shared_ptr<const policy::Snapshot> snapshot = SnapshotOf(cgroup_id, verdict.policy);
  v1::Judgement out;
  const bool by_layer =
      verdict.rule != AM_NET_BY_FAILURE && verdict.rule != AM_NET_BY_KIND && verdict.rule != AM_NET_BY_ROUTE;
  if (by_layer && snapshot != nullptr && verdict.layer < snapshot->layers().size()) {
    const policy::CompiledLayer& layer = snapshot->layers()[verdict.layer];
    policy::Verdict said;
    said.layer = verdict.layer;
    said.posture = layer.posture;
    if (verdict.rule < layer.document->rules.size()) {
      said.rule = &layer.rule(verdict.rule);
      said.decision = said.rule->decision;
    } else if (verdict.rule == AM_NET_BY_POSTURE) {
      said.reason = "posture isolate: no network";
    } else {
      said.decision = layer.defaults[static_cast<size_t>(policy::DefaultFor::kNetwork)];
      said.reason = "default for network";
    }
    out = policy::ToJudgement(*snapshot, said, subject);
  } else if (verdict.rule == AM_NET_BY_KIND) {
    out = policy::BuiltinDenial(
        "sockets that no rule can hold",
        "the policy denies connections, and what this kind of socket sends is not judged");
  } else if (verdict.rule == AM_NET_BY_ROUTE) {
    out = policy::BuiltinDenial(
        "packets with a way of their own",
        "a route in the packet, or the device that it is bound to, leads elsewhere than what was judged");
  } else {
    out = policy::BuiltinDenial("network rules", "they could not be looked at, so everything is denied");
  }
  out.set_enforced(true);
  out.set_mechanism("cgroup_bpf");
  out.set_error(EPERM);
  return out;
}

v1::Judgement NetworkGate::DescribePacket(uint64_t cgroup_id, const policy::Subject& subject,
                                          int error) const {
  KernelVerdict verdict;
  verdict.rule = AM_NET_BY_FAILURE;
  {
    absl::MutexLock lock(&mutex_);
    const auto it = sessions_.find(cgroup_id);
    if (it != sessions_.end() && subject.address.has_value()) {
      const Version& version = it->second.current;
      const policy::Address address = policy::Reached(*subject.address);
      absl::Span<const am_net_rule> list = ListOf(*version.stored->rules, address);
      absl::StatusOr<std::vector<am_net_rule>> by_name = std::vector<am_net_rule>();
      if (const auto names = it->second.names.find(address); names != it->second.names.end()) {
        by_name = ListForNames(*version.stored->rules, *version.snapshot, address, names->second);
        if (by_name.ok()) list = *by_name;
      }
      const NetworkAnswer answer =
          WalkRules(list, subject.port, subject.protocol, static_cast<uint64_t>(clock_.BootNs()));
      verdict.policy = version.stored->policy->number();
      verdict.layer = answer.layer;
      // What is allowed by its address was stopped for its shape.
      if (!it->second.closed) verdict.rule = answer.denied ? answer.rule : AM_NET_BY_ROUTE;
    }
  }
  v1::Judgement out = Describe(cgroup_id, verdict, subject);
  out.set_mechanism("nft");
  out.set_error(error);
  return out;
}

}  // namespace agentmon
