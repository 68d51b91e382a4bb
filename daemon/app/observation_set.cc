#include "daemon/app/observation_set.h"

#include <fcntl.h>
#include <poll.h>

#include <cerrno>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "bpf/event_abi.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "common/kernel/proc_fs.h"
#include "common/kernel/seccomp_listener.h"
#include "daemon/event/kinds.h"
#include "daemon/probe/event_record.h"

namespace agentmon {
namespace {

constexpr absl::Duration kHolderPause = absl::Seconds(1);  // between tries to start one
// Within this an exec has begun that was let go before its session was verified (by a daemon that is gone, or
// by a policy that stopped nothing).
constexpr size_t kNameRecordBytes = 1 << 20;
constexpr absl::Duration kLenient = absl::Seconds(5);

// A daemon that is not root's may look into processes of its user, unless Yama lets only forefathers.
absl::Status MayReadCallers(const ProcFs& proc) {
  const auto scope = ReadWholeFile(proc.root() + "/sys/kernel/yama/ptrace_scope");
  if (!scope.ok() || absl::StartsWith(*scope, "0")) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat(
      "kernel.yama.ptrace_scope is ", absl::StripAsciiWhitespace(*scope),
      ": a daemon that is not root's cannot take over listeners or read what calls name; ask the "
      "administrator for the system's agentmon, which can, or for 'sysctl kernel.yama.ptrace_scope=0'"));
}

}  // namespace

std::unique_ptr<ObservationSet> ObservationSet::Create(const Cgroup& base, const std::string& instance,
                                                       TaskRunner& core, const Clock& clock,
                                                       ProcessTree& tree,
                                                       std::unique_ptr<HolderClient> holder,
                                                       LsmProbe::Options lsm, const UnixOptions& unix_options,
                                                       std::function<void(uint64_t)> listener_gone) {
  auto set = std::unique_ptr<ObservationSet>(new ObservationSet(core, tree, listener_gone != nullptr));
  set->holder_ = std::move(holder);
  if (set->holder_ == nullptr) {
    // Without it the file calls of every agent would fail once this daemon dies.
    set->Missing(v1::NOTIFY, absl::UnavailableError("no holder process keeps its listeners (see the log)"));
  }
  auto ring = BpfRing::Create(base.fd(), core);
  if (!ring.ok()) {
    set->Missing(v1::PROCESS, ring.status());
    set->Missing(v1::NETWORK, ring.status());
    for (const v1::Source source : {v1::LSM, v1::NFLOG}) {
      set->missing_[source] = std::string(ring.status().message());
    }
  } else {
    set->ring_ = std::move(*ring);
    auto process = ProcessProbe::Create(*set->ring_);
    if (process.ok())
      set->process_ = std::move(*process);
    else
      set->Missing(v1::PROCESS, process.status());
    auto network = NetworkProbe::Create(*set->ring_, base.fd(), instance, clock);
    if (network.ok())
      set->network_ = std::move(*network);
    else
      set->Missing(v1::NETWORK, network.status());
    if (NetworkGate* gate = set->network_gate(); gate != nullptr) {
      set->second_line_ =
          std::make_unique<SecondLine>(SecondLine::Options{instance, base.path(), set->ring_->session_level(),
                                                           !set->network_->judges_packets()},
                                       core, clock, *gate);
    } else {
      set->missing_[v1::NFLOG] = "it follows the network programs, which judge nothing here";
    }
    lsm.session_level = set->ring_->session_level();
    auto hooks = LsmProbe::Create(core, std::move(lsm));
    if (hooks.ok())
      set->lsm_ = std::move(*hooks);
    else
      set->missing_[v1::LSM] = std::string(hooks.status().message());
  }
  const auto dedupe = std::make_shared<OpenDedupe>();
  const auto permits = std::make_shared<ExecPermits>();
  NotifyProbe::Options notify;
  notify.dedupe = dedupe;
  notify.permits = permits;
  const auto served = std::make_shared<ServedPlaces>();
  notify.served = served;
  if (set->process_ != nullptr) notify.verifier = set->process_->verifier();
  set->aliases_ = SocketAliases::Create(unix_options.directory);
  if (set->network_ != nullptr && set->network_->unix_permits() != nullptr && set->aliases_.ok())
    notify.unix_means = {set->network_->unix_permits(), *set->aliases_, set->OwnSockets(),
                         unix_options.canary};
  absl::Status readable;
  if (listener_gone != nullptr) {
    readable = MayReadCallers(ProcFs());
    if (!readable.ok()) set->Missing(v1::NOTIFY, readable);
    notify.tells_execs = notify.judges_network = true;
    notify.on_gone = [&core, alive = set->alive_, gone = std::move(listener_gone)](uint64_t number) {
      core.Post([alive, gone, number] {
        if (*alive) gone(number);
      });
    };
  }
  if (set->holder_ != nullptr && readable.ok()) {
    notify.shared = &set->holder_->shared();
    set->notify_ = std::make_unique<NotifyProbe>(core, notify);
  }
  FanotifyProbe::Options fanotify;
  fanotify.dedupe = dedupe;
  fanotify.permits = permits;
  fanotify.served = served;
  if (set->holder_ != nullptr) fanotify.shared = &set->holder_->shared();
  fanotify.on_keeper = [&core, alive = set->alive_, self = set.get()](uint64_t cgroup_id) {
    core.Post([alive, self, cgroup_id] {
      if (!*alive) return;
      if (const absl::Status held = self->HoldKeeper(cgroup_id); !held.ok()) LogWarning(held.message());
    });
  };
  set->fanotify_ = std::make_unique<FanotifyProbe>(core, fanotify);
  return set;
}

ObservationSet::~ObservationSet() {
  *alive_ = false;
  if (holder_ != nullptr) core_.UnwatchFd(holder_->fd());
}

std::shared_ptr<UnixOwner> ObservationSet::OwnSockets() const {
  auto owner = UnixOwner::Create(ring_->session_level());
  if (owner.ok()) return *std::move(owner);
  LogWarning("sockets that a session serves itself are judged like others: ", owner.status().message());
  return nullptr;
}

void ObservationSet::Missing(v1::Source source, absl::Status status) {
  missing_[source] = std::string(status.message());
  LogWarning("source ", SourceName(source), " is not active: ", status.message());
}

template <typename P>
void ObservationSet::StartOne(v1::Source source, std::unique_ptr<P>& probe, RecordSink& sink) {
  if (probe == nullptr) return;
  const absl::Status started = probe->Attach(sink);
  if (started.ok()) return;
  Missing(source, started);
  probe.reset();
}

// The resolver's own thread tells what it answered.
void ObservationSet::StartNames(const Clock& clock, const Resolver::Options& options) {
  if (network_gate() == nullptr)
    return Missing(v1::RESOLVER, absl::UnavailableError("the network programs cannot lead questions to it"));
  name_records_ = RecordQueue::Create(core_, *after_drain_, kNameRecordBytes);
  const auto on_dns = [queue = name_records_](uint64_t cgroup_id, const DnsClient& client, int64_t boot_ns,
                                              const Event& event) {
    EventOrigin origin;
    origin.source = v1::RESOLVER;
    origin.boot_ns = boot_ns;
    origin.cgroup_id = cgroup_id;
    origin.pid = origin.tid = client.pid;
    origin.uid = client.uid;
    queue->Push(EncodeEventRecord(origin, event));
  };
  auto names = SessionNames::Create(*network_gate(), clock, on_dns, options);
  if (!names.ok()) return Missing(v1::RESOLVER, names.status());
  names_ = *std::move(names);
}

// The proxy's own thread tells what it was asked for.
void ObservationSet::StartProxy(const Clock& clock, const Resolver::Options& options) {
  proxy_records_ = RecordQueue::Create(core_, *after_drain_, kNameRecordBytes);
  const auto on_event = [queue = proxy_records_](uint64_t cgroup_id, const ProxyPeer& peer, int64_t boot_ns,
                                                 const Event& event) {
    EventOrigin origin;
    origin.source = v1::PROXY;
    origin.boot_ns = boot_ns;
    origin.cgroup_id = cgroup_id;
    origin.pid = origin.tid = static_cast<uint32_t>(peer.pid);
    origin.uid = peer.uid;
    queue->Push(EncodeEventRecord(origin, event));
  };
  Proxy::Options proxied;
  proxied.upstream = options.upstream;
  proxied.hosts_file = options.hosts_file;
  auto proxy = Proxy::Start(clock, on_event, std::move(proxied));
  if (!proxy.ok()) return Missing(v1::PROXY, proxy.status());
  proxy_ = *std::move(proxy);
}

absl::StatusOr<ProxyDoor> ObservationSet::OpenProxy(ProxiedSession session,
                                                    const std::optional<ProxyDoor>& earlier) {
  if (proxy_ != nullptr) return proxy_->AddSession(std::move(session), earlier);
  const auto why = missing_.find(v1::PROXY);
  return absl::UnavailableError(why == missing_.end() ? "the kernel judges connects" : why->second);
}

void ObservationSet::Start(RecordSink& sink, const Clock& clock, const Resolver::Options& resolver,
                           Unseen unseen) {
  unseen_ = std::move(unseen);
  StartOne(v1::PROCESS, process_, sink);
  StartOne(v1::NETWORK, network_, sink);
  if (network_ == nullptr) second_line_.reset();  // its gate is gone
  // Forks and execs first: who the caller of a file event is, they tell.
  after_drain_ = std::make_unique<AfterDrain>(ring_.get(), sink);
  StartOne(v1::NOTIFY, notify_, *after_drain_);
  StartOne(v1::FANOTIFY, fanotify_, *after_drain_);
  if (second_line_ != nullptr) {
    second_line_->Start(*after_drain_, [this](uint64_t cgroup_id, uint64_t packets) {
      unseen_(cgroup_id, v1::NFLOG, "stopped by nftables beyond the number that is told", packets);
    });
  }
  StartNames(clock, resolver);
  if (by_listener_) StartProxy(clock, resolver);
  StartOne(v1::LSM, lsm_, *after_drain_);
  if (holder_ != nullptr) {
    if (const absl::Status watched = WatchHolder(); !watched.ok()) LogWarning(watched.message());
  }
}

absl::Status ObservationSet::AddSession(uint64_t cgroup_id, int own_fd) {
  if (network_ != nullptr && own_fd >= 0) RETURN_IF_ERROR(network_->AddCgroup(cgroup_id, own_fd));
  return ring_ == nullptr ? absl::OkStatus() : ring_->AddSession(cgroup_id);
}

absl::Status ObservationSet::JudgeConnects(uint64_t cgroup_id,
                                           std::shared_ptr<const policy::Snapshot> snapshot) {
  if (network_ == nullptr) return absl::UnavailableError(missing_[v1::NETWORK]);
  absl::Status judged = network_->Enforce(cgroup_id, snapshot);
  if (judged.ok() && names_ != nullptr) judged = names_->SetPolicy(cgroup_id, std::move(snapshot));
  keep_earlier_ = keep_earlier_ || !judged.ok();
  return judged;
}

absl::Status ObservationSet::CanJudgeUnix() const {
  if (network_ == nullptr) return absl::UnavailableError("the network programs do not run");
  RETURN_IF_ERROR(network_->unix_judgeable());
  return aliases_.status();
}

absl::Status ObservationSet::JudgeUnix(uint64_t cgroup_id) {
  RETURN_IF_ERROR(CanJudgeUnix());
  return network_->JudgeUnix(cgroup_id);
}

void ObservationSet::DropEarlier() {
  if (network_ != nullptr && !keep_earlier_) network_->DropEarlier();
  if (second_line_ != nullptr) second_line_->Begin();
}

bool ObservationSet::BacksUpConnects(uint64_t cgroup_id) const {
  return second_line_ != nullptr && network_ != nullptr && network_->gate()->Stops(cgroup_id);
}

void ObservationSet::TryBackstop(uint64_t cgroup_id, UniqueFd socket,
                                 std::function<void(absl::Status)> done) {
  second_line_->Try(cgroup_id, std::move(socket), std::move(done));
}

void ObservationSet::WhenBackstopFollows(std::function<void()> done) {
  if (second_line_ == nullptr) return done();
  second_line_->Follow(std::move(done));
}

void ObservationSet::TakeIn() {
  if (ring_ != nullptr) ring_->Drain();
}

void ObservationSet::RemoveSession(uint64_t cgroup_id) {
  if (holder_ != nullptr) RemoveGroup(cgroup_id);
  losses_.erase(cgroup_id);
  if (notify_ != nullptr) {
    notify_->RemoveListener(cgroup_id);
    notify_->Drain();
  }
  if (fanotify_ != nullptr) {
    fanotify_->RemoveSession(cgroup_id);
    fanotify_->Drain();
  }
  if (proxy_ != nullptr) {
    proxy_records_->Drain();
    proxy_->RemoveSession(cgroup_id);
  }
  if (ring_ == nullptr) {
    gates_.erase(cgroup_id);
    return tree_.ForgetSession(cgroup_id);
  }
  ring_->Drain();
  if (second_line_ != nullptr) second_line_->RemoveSession(cgroup_id);
  if (names_ != nullptr) {  // after the connections, which have their names
    name_records_->Drain();
    names_->RemoveSession(cgroup_id);
  }
  if ((cgroup_id & AM_WATCHED) != 0) {
    if (process_ != nullptr) process_->Unwatch(static_cast<uint32_t>(cgroup_id));
    return tree_.ForgetSession(cgroup_id);
  }
  gates_.erase(cgroup_id);
  if (process_ != nullptr) process_->Unverify(cgroup_id);
  if (network_ != nullptr) network_->RemoveCgroup(cgroup_id);
  if (aliases_.ok()) (*aliases_)->Forget(cgroup_id);
  if (lsm_ != nullptr) lsm_->RemoveSession(cgroup_id);
  if (const absl::Status s = ring_->RemoveSession(cgroup_id); !s.ok() && !absl::IsNotFound(s)) {
    LogWarning(s.message());
  }
  tree_.ForgetSession(cgroup_id);
}

bool ObservationSet::Settled(uint64_t cgroup_id) {
  return fanotify_ == nullptr || fanotify_->Settled(cgroup_id);
}

absl::Status ObservationSet::AddMounts(uint64_t cgroup_id, pid_t pid, std::shared_ptr<Gate> gate) {
  if (fanotify_ == nullptr) return absl::UnavailableError(missing_[v1::FANOTIFY]);
  UniqueFd kept = holder_ == nullptr ? UniqueFd() : holder_->TakeGroup(cgroup_id);
  UniqueFd keeper = holder_ == nullptr ? UniqueFd() : holder_->TakeMounts(cgroup_id);
  const bool asks = gate != nullptr;
  const bool is_kept = asks && kept.valid();
  RETURN_IF_ERROR(fanotify_->AddSession(cgroup_id, pid, std::move(gate), std::move(kept), std::move(keeper)));
  if (!asks || holder_ == nullptr) return absl::OkStatus();
  // Before the agent begins: with the last descriptor of a group all that it asks is allowed.
  absl::Status held =
      is_kept ? absl::OkStatus() : holder_->AddGroup(cgroup_id, fanotify_->GroupOf(cgroup_id));
  held.Update(HoldKeeper(cgroup_id));
  if (!held.ok()) fanotify_->RemoveSession(cgroup_id);
  return held;
}

absl::Status ObservationSet::HoldKeeper(uint64_t cgroup_id) {
  const UniqueFd channel = fanotify_->KeeperOf(cgroup_id);
  if (!channel.valid() || holder_ == nullptr) return absl::OkStatus();
  const absl::Status held = holder_->AddMounts(cgroup_id, channel.get());
  if (!absl::IsUnimplemented(held)) return held;
  LogWarning("without a daemon nothing is asked on mounts behind a server: ", held.message());
  return absl::OkStatus();
}

std::vector<UnmarkedMount> ObservationSet::Unmarked(uint64_t cgroup_id) const {
  return fanotify_ == nullptr ? std::vector<UnmarkedMount>() : fanotify_->Unmarked(cgroup_id);
}

absl::Status ObservationSet::AddRules(uint64_t cgroup_id, pid_t pid, std::shared_ptr<Gate> gate) {
  if (lsm_ == nullptr) return absl::UnavailableError(LsmState().why());
  return lsm_->AddSession(cgroup_id, pid, std::move(gate));
}

bool ObservationSet::StopsSockets(uint64_t cgroup_id) const {
  return lsm_ != nullptr && lsm_->StopsSockets(cgroup_id);
}

bool ObservationSet::StopsSignals(uint64_t cgroup_id) const {
  return lsm_ != nullptr && lsm_->StopsSignals(cgroup_id);
}

void ObservationSet::TakeInStopped() {
  if (lsm_ != nullptr) lsm_->Drain();
}

void ObservationSet::RemoveOldRules() {
  if (lsm_ != nullptr) lsm_->KeepOwn();
}

std::set<uint64_t> ObservationSet::TakeOverListeners(
    const std::function<bool(uint64_t)>& is_session,
    const std::function<std::shared_ptr<Gate>(uint64_t cgroup_id)>& gate_of) {
  std::set<uint64_t> served;
  if (holder_ == nullptr) return served;
  for (HolderClient::Held& held : holder_->TakeHeld()) {
    absl::Status taken = absl::NotFoundError("not a session any more");
    if (notify_ != nullptr && is_session(held.cgroup_id)) {
      const auto unseen = holder_->TakeOver(held.cgroup_id);
      if (unseen.ok()) CountUnseen(held.cgroup_id, "the daemon was away", *unseen);
      // Also when the holder is gone: then nobody else answers.
      const std::shared_ptr<Gate> gate = gate_of(held.cgroup_id);
      if (gate != nullptr) gates_[held.cgroup_id] = gate;
      VerifyExecs(held.cgroup_id, kLenient);
      taken = notify_->AddListener(held.cgroup_id, std::move(held.listener), gate);
    }
    if (taken.ok())
      served.insert(held.cgroup_id);
    else
      holder_->Remove(held.cgroup_id).IgnoreError();
  }
  // Those of sessions that could not be taken over stay with the holder, which denies what they ask.
  for (const uint64_t cgroup_id : holder_->GroupsLeft()) {
    if (!is_session(cgroup_id)) RemoveGroup(cgroup_id);
  }
  return served;
}

void ObservationSet::RemoveGroup(uint64_t cgroup_id) {
  holder_->TakeGroup(cgroup_id);  // and closes it
  holder_->TakeMounts(cgroup_id);
  holder_->Remove(cgroup_id).IgnoreError();
}

void ObservationSet::CountUnseen(uint64_t cgroup_id, absl::string_view why, uint64_t calls) {
  if (calls == 0) return;
  notify_->CountLost(calls);
  unseen_(cgroup_id, v1::NOTIFY, why, calls);
}

bool ObservationSet::MakesProgress() {
  if (notify_ != nullptr && holder_ != nullptr) {
    notify_->EachListener([this](uint64_t cgroup_id, int fd, bool) {
      pollfd listener{fd, POLLIN, 0};
      if (::poll(&listener, 1, 0) > 0 && (listener.revents & POLLIN) != 0)
        answers_.OnNotServed(cgroup_id, holder_->shared().TurnsOf(cgroup_id));
    });
  }
  if (fanotify_ != nullptr) {
    fanotify_->EachAsked([this](uint64_t cgroup_id, int group, uint64_t turns) {
      pollfd asked{group, POLLIN, 0};
      if (::poll(&asked, 1, 0) > 0 && (asked.revents & POLLIN) != 0) answers_.OnNotServed(~cgroup_id, turns);
    });
  }
  return answers_.MakesProgress();
}

absl::Status ObservationSet::WatchHolder() {
  return core_.WatchFd(holder_->fd(), [this] { OnHolder(); });
}

void ObservationSet::OnHolder() {
  const auto unseen = holder_->Read();
  if (!unseen.ok()) return OnHolderGone();
  for (const HolderClient::Unseen& u : *unseen) {
    answers_.OnNotServed(u.cgroup_id, holder_->shared().TurnsOf(u.cgroup_id));
    CountUnseen(u.cgroup_id, "the daemon stood still", u.requests);
  }
}

void ObservationSet::OnHolderGone() {
  core_.UnwatchFd(holder_->fd());
  if (!holder_lost_) LogWarning("the holder process is gone; starting another one");
  const absl::Status restarted = RestartHolder();
  holder_lost_ = !restarted.ok();
  if (restarted.ok()) return;
  Missing(v1::NOTIFY, absl::UnavailableError(absl::StrCat(
                          "the holder process is gone, until there is another one new sessions run without "
                          "this source: ",
                          restarted.message())));
  core_.PostAfter(kHolderPause, [this, alive = alive_] {
    if (*alive) OnHolderGone();
  });
}

absl::Status ObservationSet::RestartHolder() {
  RETURN_IF_ERROR(holder_->Restart());
  absl::Status given;
  if (notify_ != nullptr) {
    notify_->EachListener([&](uint64_t cgroup_id, int fd, bool closed) {
      given.Update(holder_->Add(cgroup_id, fd, closed, closed && by_listener_));
    });
  }
  if (fanotify_ != nullptr) {
    fanotify_->EachAsked(
        [&](uint64_t cgroup_id, int group, uint64_t) { given.Update(holder_->AddGroup(cgroup_id, group)); });
    for (const uint64_t cgroup_id : fanotify_->SessionsWithKeepers()) given.Update(HoldKeeper(cgroup_id));
  }
  for (const auto& [cgroup_id, loss] : losses_)
    given.Update(holder_->SetLossAction(cgroup_id, loss.first.get(), loss.second));
  RETURN_IF_ERROR(given);
  return WatchHolder();
}

void ObservationSet::VerifyExecs(uint64_t cgroup_id, absl::Duration lenient) {
  const auto gate = gates_.find(cgroup_id);
  if (process_ == nullptr || gate == gates_.end()) return;
  // Where nothing is stopped, calls go on unseen when looking at them hangs: no permit is written then.
  if (!gate->second->enforces()) return process_->Unverify(cgroup_id);
  if (const absl::Status s = process_->Verify(cgroup_id, lenient); !s.ok()) LogWarning(s.message());
}

absl::Status ObservationSet::PolicyChanged(uint64_t cgroup_id) {
  if (fanotify_ != nullptr) fanotify_->PolicyChanged(cgroup_id);
  VerifyExecs(cgroup_id, kLenient);
  return lsm_ == nullptr ? absl::OkStatus() : lsm_->PolicyChanged(cgroup_id);
}

absl::Status ObservationSet::SetLossAction(const Cgroup& cgroup, LossAction action) {
  const bool known = losses_.erase(cgroup.id()) != 0;
  if (action == LossAction::kNone && !known) return absl::OkStatus();
  if (holder_ == nullptr) return absl::UnavailableError("there is no holder process to do it (see the log)");
  if (action != LossAction::kNone) {
    UniqueFd directory(fcntl(cgroup.fd(), F_DUPFD_CLOEXEC, 0));
    if (!directory.valid()) return ErrnoStatus(errno, "duplicate the descriptor of a cgroup");
    losses_[cgroup.id()] = {std::move(directory), action};
  }
  return holder_->SetLossAction(cgroup.id(), cgroup.fd(), action);
}

absl::Status ObservationSet::AddListener(uint64_t cgroup_id, UniqueFd listener, std::shared_ptr<Gate> gate) {
  if (notify_ == nullptr || holder_lost_) return absl::UnavailableError(missing_[v1::NOTIFY]);
  RETURN_IF_ERROR(CheckSeccompListener(listener.get()));
  const bool armed = gate != nullptr && gate->armed();
  RETURN_IF_ERROR(holder_->Add(cgroup_id, listener.get(), armed, armed && by_listener_));
  if (gate != nullptr) gates_[cgroup_id] = gate;
  VerifyExecs(cgroup_id, absl::ZeroDuration());
  return notify_->AddListener(cgroup_id, std::move(listener), std::move(gate));
}

absl::StatusOr<int> ObservationSet::CollectTree(pid_t root,
                                                const std::function<absl::Status(pid_t)>& move_one) {
  if (process_ == nullptr) {
    return absl::UnavailableError(
        absl::StrCat("running processes cannot be followed: ", missing_.at(v1::PROCESS)));
  }
  absl::MutexLock lock(&collect_mutex_);
  ASSIGN_OR_RETURN(const std::vector<ProcessKey> alive, process_->CollectTree(root, move_one));
  return static_cast<int>(alive.size());
}

absl::StatusOr<uint64_t> ObservationSet::AddWatch(pid_t root) {
  if (process_ == nullptr) {
    return absl::UnavailableError(
        absl::StrCat("running processes cannot be followed: ", missing_.at(v1::PROCESS)));
  }
  absl::MutexLock lock(&collect_mutex_);
  const uint32_t number = next_watch_++;
  RETURN_IF_ERROR(process_->Watch(root, number).status());
  return AM_WATCHED | number;
}

void ObservationSet::SessionMembersChanged() {
  if (process_ == nullptr) return;
  const auto processes = process_->ListSessionProcesses();
  if (!processes.ok()) return LogWarning("list the sessions' processes: ", processes.status().message());
  for (const SeedProcess& process : *processes) tree_.Seed(process);
}

bool ObservationSet::WatchEnded(uint64_t watch_id) {
  return process_ == nullptr || !process_->Watches(static_cast<uint32_t>(watch_id));
}

v1::SourceState ObservationSet::StateOf(v1::Source source, const Probe* probe) const {
  v1::SourceState state;
  state.set_source(source);
  state.set_active(probe != nullptr);
  state.set_counts(SourceIsExact(source) ? "exact" : "at least");
  if (probe == nullptr) {
    const auto it = missing_.find(source);
    if (it != missing_.end()) state.set_why(it->second);
  } else {
    state.set_events(probe->Stats().records);
    state.set_lost(probe->Stats().lost);
  }
  return state;
}

std::vector<v1::SourceState> ObservationSet::Sources() const {
  std::vector<v1::SourceState> states = {
      StateOf(v1::PROCESS, process_.get()), StateOf(v1::NETWORK, network_.get()),
      StateOf(v1::NOTIFY, holder_lost_ ? nullptr : notify_.get()), StateOf(v1::FANOTIFY, fanotify_.get())};
  v1::SourceState& resolver = states.emplace_back(StateOf(v1::RESOLVER, nullptr));
  if (names_ != nullptr) {
    resolver.set_active(true);
    resolver.set_events(name_records_->Stats().records);
    resolver.set_lost(name_records_->Stats().lost);
  }
  if (network_ != nullptr && !network_->Inactive().empty()) {
    states[1].set_why(absl::StrJoin(network_->Inactive(), "; "));
  }
  states.push_back(second_line_ != nullptr ? second_line_->State() : StateOf(v1::NFLOG, nullptr));
  if (by_listener_) {
    v1::SourceState& proxy = states.emplace_back(StateOf(v1::PROXY, nullptr));
    if (proxy_ != nullptr) {
      proxy.set_active(true);
      proxy.set_events(proxy_records_->Stats().records);
      proxy.set_lost(proxy_records_->Stats().lost);
    }
  }
  if (lsm_ != nullptr) states.push_back(LsmState());
  return states;
}

v1::SourceState ObservationSet::LsmState() const {
  v1::SourceState state = StateOf(v1::LSM, lsm_.get());
  if (lsm_ != nullptr && !lsm_->Inactive().empty()) state.set_why(absl::StrJoin(lsm_->Inactive(), "; "));
  return state;
}

}  // namespace agentmon
