#include "daemon/enforce/network_backstop.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "common/policy/builtin.h"
#include "daemon/enforce/nft.h"

namespace agentmon {
namespace {

constexpr absl::Duration kSettle = absl::Milliseconds(100);
// Connected datagram sockets go on after the address's time is over; the programs judge only their connect.
constexpr int64_t kLingerNs = 3'600'000'000'000;
constexpr size_t kMostNames = 2048;   // of a session
constexpr char kRoot[] = "../../..";  // nft names cgroups from /sys/fs/cgroup, and only looks at their number
constexpr int kCgroupHandle = 0xfe;   // FILEID_KERNFS of <linux/exportfs.h>

absl::StatusOr<UniqueFd> OpenCgroup(int mount, uint64_t id) {
  alignas(file_handle) unsigned char space[sizeof(file_handle) + sizeof(id)] = {};
  auto* handle = reinterpret_cast<file_handle*>(space);
  handle->handle_bytes = sizeof(id);
  handle->handle_type = kCgroupHandle;
  std::memcpy(handle->f_handle, &id, sizeof(id));
  UniqueFd fd(::open_by_handle_at(mount, handle, O_PATH | O_CLOEXEC));
  if (!fd.valid()) return ErrnoStatus(errno, "open the session's cgroup by its number");
  return fd;
}

std::string PathOf(int fd) {
  char path[4096];
  const ssize_t size = ::readlink(absl::StrCat("/proc/self/fd/", fd).c_str(), path, sizeof(path));
  if (size <= 0) return "";
  const absl::string_view whole(path, static_cast<size_t>(size));
  absl::string_view below = whole;
  return absl::ConsumePrefix(&below, "/sys/fs/cgroup/") ? std::string(below) : absl::StrCat(kRoot, whole);
}

// The errno; 0 = sent.
int SendToCanary(int socket) {
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(policy::kCanaryPort);
  const policy::Address address = *policy::ParseAddress(policy::kCanaryAddress);
  std::memcpy(&to.sin_addr, address.bytes.data(), sizeof(to.sin_addr));
  const ssize_t sent = ::sendto(socket, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL,
                                reinterpret_cast<const sockaddr*>(&to), sizeof(to));
  return sent < 0 ? errno : 0;
}

int SocketOption(int socket, int name) {
  int value = -1;
  socklen_t size = sizeof(value);
  return ::getsockopt(socket, SOL_SOCKET, name, &value, &size) == 0 ? value : -1;
}

bool SameTarget(const ResolverTarget& a, const ResolverTarget& b) {
  return a.v4 == b.v4 && a.v6 == b.v6 && a.v4_port == b.v4_port && a.v6_port == b.v6_port;
}

}  // namespace

NetworkBackstop::NetworkBackstop(Options options, const Clock& clock)
    : options_(std::move(options)),
      ruleset_(options_.ruleset),
      clock_(clock),
      nft_(Nft::Create()),
      thread_([this] { Run(); }) {
  ::pthread_setname_np(thread_.native_handle(), "backstop");
}

NetworkBackstop::~NetworkBackstop() {
  {
    absl::MutexLock lock(&mutex_);
    ending_ = true;
  }
  thread_.join();
}

void NetworkBackstop::Pause(uint64_t cgroup_id) {
  {
    absl::MutexLock lock(&mutex_);
    const auto it = wanted_.find(cgroup_id);
    if (it == wanted_.end()) return;
    it->second.paused = true;
    changed_.insert(cgroup_id);
    if (!begun_ || behind_) return;  // many sessions that switch do not each wait for what stands still
  }
  const bool settled = Settle(cgroup_id);
  absl::MutexLock lock(&mutex_);
  behind_ = !settled;
}

void NetworkBackstop::SetPolicy(uint64_t cgroup_id, Policy policy, OpenedAddresses names) {
  absl::MutexLock lock(&mutex_);
  Wanted& wanted = wanted_[cgroup_id];
  wanted.paused = false;
  wanted.policy = std::move(policy);
  wanted.names = std::move(names);
  changed_.insert(cgroup_id);
}

void NetworkBackstop::SetName(uint64_t cgroup_id, const policy::Address& address, OpenedAddress opened) {
  absl::MutexLock lock(&mutex_);
  const auto it = wanted_.find(cgroup_id);
  if (it == wanted_.end()) return;
  OpenedAddresses& names = it->second.names;
  if (names.size() >= kMostNames && names.count(address) == 0) {
    // Many at once: each time all of the kernel's are made anew.
    std::vector<int64_t> ends;
    for (const auto& [unused, known] : names) ends.push_back(known.until_ns);
    std::nth_element(ends.begin(), ends.begin() + kMostNames / 4, ends.end());
    std::erase_if(names, [&](const auto& entry) { return entry.second.until_ns <= ends[kMostNames / 4]; });
  }
  names[address] = std::move(opened);
  changed_.insert(cgroup_id);
}

void NetworkBackstop::SetResolver(uint64_t cgroup_id, const ResolverTarget& target) {
  absl::MutexLock lock(&mutex_);
  const auto it = wanted_.find(cgroup_id);
  if (it == wanted_.end() || SameTarget(it->second.resolver, target)) return;
  it->second.resolver = target;
  changed_.insert(cgroup_id);
}

void NetworkBackstop::RemoveSession(uint64_t cgroup_id) {
  absl::MutexLock lock(&mutex_);
  if (wanted_.erase(cgroup_id) > 0) changed_.insert(cgroup_id);
}

bool NetworkBackstop::Settle(uint64_t cgroup_id) {
  absl::MutexLock lock(&mutex_);
  const auto settled = [this, cgroup_id] {
    mutex_.AssertHeld();
    return changed_.count(cgroup_id) == 0 && working_on_ != cgroup_id;
  };
  return mutex_.AwaitWithTimeout(absl::Condition(&settled), kSettle);
}

void NetworkBackstop::Begin() {
  absl::MutexLock lock(&mutex_);
  begun_ = begin_is_due_ = true;
}

void NetworkBackstop::AfterChanges(std::function<void()> done) {
  absl::MutexLock lock(&mutex_);
  asked_.push_back(std::move(done));
}

void NetworkBackstop::Try(uint64_t cgroup_id, UniqueFd socket, Done done) {
  absl::MutexLock lock(&mutex_);
  auto kept = std::make_shared<UniqueFd>(std::move(socket));
  asked_.emplace_back([this, cgroup_id, kept, done] { done(TryNow(cgroup_id, *kept)); });
}

void NetworkBackstop::CountStopped(uint64_t cgroup_id, std::function<void(absl::StatusOr<uint64_t>)> done) {
  absl::MutexLock lock(&mutex_);
  asked_.emplace_back([this, cgroup_id, done] { done(Stopped(cgroup_id)); });
}

void NetworkBackstop::Plan(uint64_t cgroup_id, bool apply,
                           std::function<void(absl::StatusOr<std::string>)> done) {
  absl::MutexLock lock(&mutex_);
  asked_.emplace_back([this, cgroup_id, apply, done] { done(PlanNow(cgroup_id, apply)); });
}

absl::Status NetworkBackstop::status() const {
  absl::MutexLock lock(&mutex_);
  return status_;
}

void NetworkBackstop::SetStatus(absl::Status status) {
  absl::MutexLock lock(&mutex_);
  if (!status.ok() && status_.ok()) LogWarning("source nflog is not active: ", status.message());
  status_ = std::move(status);
}

void NetworkBackstop::Run() {
  for (;;) {
    std::optional<uint64_t> changed;
    std::optional<Wanted> wanted;
    std::optional<std::map<uint64_t, Wanted>> begin;
    std::function<void()> asked;
    {
      absl::MutexLock lock(&mutex_);
      working_on_.reset();
      if (changed_.empty()) behind_ = false;
      mutex_.Await(absl::Condition(this, &NetworkBackstop::MustWork));
      // What is still to be changed, is: it may be a pause that ends.
      if (ending_ && (!begun_ || (!begin_is_due_ && changed_.empty()))) return;
      if (begin_is_due_) {
        begin_is_due_ = false;
        begin = wanted_;
        changed_.clear();
      } else if (!changed_.empty()) {
        changed = working_on_ = *changed_.begin();
        changed_.erase(changed_.begin());
        if (const auto it = wanted_.find(*changed); it != wanted_.end()) wanted = it->second;
      } else {
        asked = std::move(asked_.front());
        asked_.erase(asked_.begin());
      }
    }
    if (begin.has_value())
      DoBegin(*std::move(begin));
    else if (changed.has_value())
      Apply(*changed, std::move(wanted));
    else
      asked();
  }
}

bool NetworkBackstop::MustWork() const {
  mutex_.AssertHeld();
  return ending_ || (begun_ && (begin_is_due_ || !changed_.empty() || !asked_.empty()));
}

void NetworkBackstop::DoBegin(std::map<uint64_t, Wanted> wanted) {
  if (!nft_.ok()) return SetStatus(nft_.status());
  mount_ = UniqueFd(::open(options_.cgroup_mount.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!mount_.valid()) return SetStatus(ErrnoStatus(errno, "open the mount of cgroup2"));
  auto table = NftTable::Create(options_.ruleset.table);
  if (!table.ok()) return SetStatus(table.status());
  table_.emplace(*std::move(table));
  std::string unused;
  for (auto& [cgroup_id, session] : wanted) {
    if (!Needs(session)) continue;
    if (const absl::Status entered = Enter(cgroup_id, session, unused); !entered.ok())
      Fail(cgroup_id, entered);
  }
  if (Rebuild().ok()) return;
  // One by one: what one session needs is not refused because of another one.
  applied_.clear();
  policies_.clear();
  SetStatus(Rebuild());
  for (auto& [cgroup_id, session] : wanted) Apply(cgroup_id, std::move(session));
}

bool NetworkBackstop::Needs(const Wanted& wanted) {
  return wanted.policy.closed || (wanted.policy.rules != nullptr && wanted.policy.rules->stops);
}

void NetworkBackstop::Fail(uint64_t cgroup_id, const absl::Status& status) {
  failed_[cgroup_id] = status;
  LogWarning("the network backstop of the session with cgroup ", cgroup_id, ": ", status.message());
}

// The books first, and then the kernel. Where that fails (somebody has flushed all tables, perhaps), it gets
// all of the books, and then all but this session.
void NetworkBackstop::Apply(uint64_t cgroup_id, std::optional<Wanted> wanted) {
  if (!table_.has_value()) return;
  failed_.erase(cgroup_id);
  Change change;
  absl::Status status;
  const auto applied = applied_.find(cgroup_id);
  Applied left;
  if (!wanted.has_value() || !Needs(*wanted)) {
    if (applied == applied_.end()) return;
    left = Leave(cgroup_id, change.commands);
  } else if (applied == applied_.end()) {
    if (applied_.empty()) change.commands = ruleset_.Delete() + ruleset_.AddTable();
    status = Enter(cgroup_id, *wanted, change.commands);
  } else {
    status = Update(cgroup_id, applied->second, *wanted, change);
  }
  if (status.ok() && Tell(change).ok()) return SetStatus(absl::OkStatus());
  if (status.ok()) status = Rebuild();
  if (status.ok()) return SetStatus(absl::OkStatus());
  Fail(cgroup_id, status);
  if (applied_.count(cgroup_id) > 0) left = Leave(cgroup_id, change.commands);
  status = Rebuild();
  if (!status.ok()) {
    applied_.clear();
    policies_.clear();
  }
  SetStatus(status);
}

absl::Status NetworkBackstop::Tell(const Change& change) {
  if (!change.commands.empty()) return (*nft_)->Run(change.commands);
  return change.elements.empty() ? absl::OkStatus() : table_->Apply(change.elements);
}

absl::Status NetworkBackstop::Hold(const Policy& policy, std::string& commands) {
  if (policy.closed) return absl::OkStatus();
  const auto [it, is_new] = policies_.try_emplace(policy.number);
  if (is_new) {
    absl::StatusOr<PacketRules> rules = CompilePacketRules(*policy.rules);
    if (!rules.ok()) {
      policies_.erase(it);
      return rules.status();
    }
    it->second.rules = *std::move(rules);
    absl::StrAppend(&commands, ruleset_.AddPolicy(policy.number, it->second.rules));
  }
  ++it->second.sessions;
  return absl::OkStatus();
}

void NetworkBackstop::LetGo(uint32_t policy, std::string& commands) {
  const auto it = policies_.find(policy);
  if (it == policies_.end() || --it->second.sessions > 0) return;
  absl::StrAppend(&commands, ruleset_.RemovePolicy(policy, it->second.rules));
  policies_.erase(it);
}

absl::Status NetworkBackstop::Enter(uint64_t cgroup_id, const Wanted& wanted, std::string& commands) {
  Applied applied;
  ASSIGN_OR_RETURN(applied.directory, OpenCgroup(mount_.get(), cgroup_id));
  RETURN_IF_ERROR(Hold(wanted.policy, commands));
  applied.policy = wanted.policy.closed ? 0 : wanted.policy.number;
  applied.resolver = wanted.resolver;
  applied.names = WithLinger(wanted.names);
  absl::StrAppend(&commands, ruleset_.AddSession(Describe(cgroup_id, applied, Cgroup::kDescriptor)));
  applied_[cgroup_id] = std::move(applied);
  return absl::OkStatus();
}

// What is returned must live until the commands are run: they name its descriptor.
NetworkBackstop::Applied NetworkBackstop::Leave(uint64_t cgroup_id, std::string& commands) {
  const auto it = applied_.find(cgroup_id);
  Applied applied = std::move(it->second);
  applied_.erase(it);
  if (applied_.empty()) {
    policies_.clear();
    commands = ruleset_.Delete();
    return applied;
  }
  absl::StrAppend(&commands, ruleset_.RemoveSession(cgroup_id, NameOf(applied, Cgroup::kDescriptor)));
  LetGo(applied.policy, commands);
  return applied;
}

absl::Status NetworkBackstop::Update(uint64_t cgroup_id, Applied& applied, const Wanted& wanted,
                                     Change& change) {
  if (wanted.paused) {
    applied.paused = true;
    change.elements.flushed_chains = {NftRuleset::ChainOf(cgroup_id)};
    return absl::OkStatus();
  }
  const uint32_t policy = wanted.policy.closed ? 0 : wanted.policy.number;
  if (policy == applied.policy && !applied.paused && SameTarget(applied.resolver, wanted.resolver)) {
    UpdateNames(cgroup_id, applied, wanted.names, change);
    return absl::OkStatus();
  }
  const uint32_t before = applied.policy;
  if (policy != before) RETURN_IF_ERROR(Hold(wanted.policy, change.commands));
  applied.policy = policy;
  applied.paused = false;
  applied.resolver = wanted.resolver;
  applied.names = WithLinger(wanted.names);
  absl::StrAppend(&change.commands,
                  ruleset_.ReplaceSession(Describe(cgroup_id, applied, Cgroup::kDescriptor)));
  if (policy != before) LetGo(before, change.commands);
  return absl::OkStatus();
}

// The kernel prolongs no element: where one is not enough any more, all of them are made anew.
void NetworkBackstop::UpdateNames(uint64_t cgroup_id, Applied& applied, const OpenedAddresses& names,
                                  Change& change) const {
  const int64_t now = clock_.BootNs();
  OpenedAddresses added;
  bool replace = false;
  for (const auto& [address, opened] : names) {
    if (opened.until_ns <= now) continue;
    const auto known = applied.names.find(address);
    if (known == applied.names.end())
      added[address] = opened;
    else
      replace = replace || opened.until_ns > known->second.until_ns || opened.ports != known->second.ports;
  }
  for (const auto& [address, opened] : applied.names)
    replace = replace || (opened.until_ns > now && names.count(address) == 0);
  if (replace) {
    applied.names = WithLinger(names);
    change.elements.flushed_maps = NftRuleset::NameMaps(cgroup_id);
    change.elements.added = NftRuleset::NameElements(cgroup_id, Live(applied.names));
  } else if (!added.empty()) {
    added = WithLinger(added);
    change.elements.added = NftRuleset::NameElements(cgroup_id, Live(added));
    applied.names.merge(added);
  }
}

NetworkBackstop::OpenedAddresses NetworkBackstop::WithLinger(const OpenedAddresses& names) const {
  const int64_t now = clock_.BootNs();
  OpenedAddresses out;
  for (const auto& [address, opened] : names) {
    if (opened.until_ns > now) out[address] = {opened.ports, opened.until_ns + kLingerNs};
  }
  return out;
}

std::map<policy::Address, NamedAddress> NetworkBackstop::Live(const OpenedAddresses& names) const {
  const int64_t now = clock_.BootNs();
  std::map<policy::Address, NamedAddress> out;
  for (const auto& [address, opened] : names) {
    const absl::Duration left = absl::Nanoseconds(opened.until_ns - now);
    if (left >= absl::Seconds(1)) out[address] = {opened.ports, left};
  }
  return out;
}

std::string NetworkBackstop::NameOf(const Applied& applied, Cgroup naming) {
  const int fd = applied.directory.get();
  return naming == Cgroup::kPath ? PathOf(fd) : absl::StrCat(kRoot, "/proc/self/fd/", fd);
}

NftSession NetworkBackstop::Describe(uint64_t cgroup_id, const Applied& applied, Cgroup naming) const {
  NftSession session;
  session.cgroup_id = cgroup_id;
  session.cgroup = NameOf(applied, naming);
  session.policy = applied.policy;
  if (const auto policy = policies_.find(applied.policy); policy != policies_.end())
    session.rules = &policy->second.rules;
  session.resolver = applied.resolver;
  session.names = Live(applied.names);
  return session;
}

absl::Status NetworkBackstop::Rebuild() {
  std::string commands = ruleset_.Delete();
  if (!applied_.empty()) commands += ruleset_.AddTable();
  for (const auto& [number, policy] : policies_)
    if (policy.sessions > 0) commands += ruleset_.AddPolicy(number, policy.rules);
  for (const auto& [cgroup_id, applied] : applied_)
    commands += ruleset_.AddSession(Describe(cgroup_id, applied, Cgroup::kDescriptor));
  return (*nft_)->Run(commands);
}

absl::StatusOr<uint64_t> NetworkBackstop::Stopped(uint64_t cgroup_id) {
  if (applied_.count(cgroup_id) == 0) return NotInPlace(cgroup_id);
  return table_->PacketsOf(NftRuleset::CounterOf(cgroup_id));
}

absl::Status NetworkBackstop::NotInPlace(uint64_t cgroup_id) const {
  RETURN_IF_ERROR(status());
  const auto failed = failed_.find(cgroup_id);
  return failed != failed_.end() ? failed->second
                                 : absl::NotFoundError("the session's policy denies nothing of the network");
}

absl::Status NetworkBackstop::TryNow(uint64_t cgroup_id, const UniqueFd& socket) {
  if (SocketOption(socket.get(), SO_DOMAIN) != AF_INET || SocketOption(socket.get(), SO_TYPE) != SOCK_DGRAM)
    return absl::InvalidArgumentError("the session gave no datagram socket to try it with");
  ASSIGN_OR_RETURN(const uint64_t before, Stopped(cgroup_id));
  const UniqueFd outside(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (const int error = SendToCanary(outside.get()); error != 0)
    return absl::UnavailableError(absl::StrCat("the same datagram from outside of the session failed, too (",
                                               ErrnoName(error), "), which proves nothing"));
  const int error = SendToCanary(socket.get());
  if (error == 0) return absl::FailedPreconditionError("the forbidden datagram went through");
  ASSIGN_OR_RETURN(const uint64_t after, Stopped(cgroup_id));
  if (error == EPERM && after > before) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("the forbidden datagram was stopped by something else (", ErrnoName(error), ")"));
}

absl::StatusOr<std::string> NetworkBackstop::PlanNow(uint64_t cgroup_id, bool apply) {
  const auto applied = applied_.find(cgroup_id);
  if (applied == applied_.end()) return NotInPlace(cgroup_id);
  if (apply) RETURN_IF_ERROR(Rebuild());
  std::string commands = ruleset_.AddTable();
  if (const auto policy = policies_.find(applied->second.policy); policy != policies_.end())
    commands += ruleset_.AddPolicy(policy->first, policy->second.rules);
  return commands + ruleset_.AddSession(Describe(cgroup_id, applied->second, Cgroup::kPath));
}

}  // namespace agentmon
