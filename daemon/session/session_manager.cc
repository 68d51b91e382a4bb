#include "daemon/session/session_manager.h"

#include <fcntl.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "common/base/log.h"
#include "common/base/refusal.h"
#include "common/base/status.h"
#include "daemon/event/kinds.h"
#include "daemon/event/redact.h"
#include "daemon/session/session_state.h"

namespace agentmon {
namespace {

using absl::StatusCode;

constexpr size_t kMaxName = 128;
constexpr size_t kMaxLabels = 32;
constexpr size_t kMaxLabelText = 256;
constexpr size_t kMaxCommand = 64 * 1024;

std::string RandomBytes(size_t size) {
  std::string bytes(size, '\0');
  if (::getrandom(bytes.data(), size, 0) != static_cast<ssize_t>(size)) {
    LogError("getrandom failed");
    ::abort();  // no unguessable token without it
  }
  return bytes;
}

// "s" and eleven characters without look-alikes: 55 bits.
std::string NewId() {
  static constexpr char kAlphabet[] = "abcdefghjkmnpqrstuvwxyz23456789w";
  std::string id = "s";
  for (const char c : RandomBytes(11)) id += kAlphabet[static_cast<unsigned char>(c) % 32];
  return id;
}

absl::Status TooBig(absl::string_view what) { return Refusal(StatusCode::kInvalidArgument, "TOO_BIG", what); }

}  // namespace

absl::Status CheckStartFields(const std::string& name, const std::string& workspace,
                              const google::protobuf::Map<std::string, std::string>& labels) {
  if (name.size() > kMaxName) return TooBig("the name is longer than 128 bytes");
  if (workspace.size() >= 4096) return TooBig("the workspace is longer than 4,095 bytes");
  if (!workspace.empty() && workspace[0] != '/') {
    return Refusal(StatusCode::kInvalidArgument, "BAD_WORKSPACE", "the workspace is not an absolute path");
  }
  if (labels.size() > kMaxLabels) return TooBig("more than 32 labels");
  for (const auto& [key, value] : labels) {
    if (key.empty() || key.size() > kMaxLabelText || value.size() > kMaxLabelText) {
      return TooBig("a label's key or value is empty or longer than 256 bytes");
    }
  }
  return absl::OkStatus();
}

void Describe(const std::string& name, const std::string& workspace,
              const google::protobuf::Map<std::string, std::string>& labels, v1::Session& session) {
  session.set_name(name);
  session.set_workspace(workspace);
  Redactor::RedactText(session.mutable_name());
  Redactor::RedactPath(session.mutable_workspace());
  for (const auto& [key, value] : labels) {
    std::string shown_key = key, shown_value = value;
    Redactor::RedactNamed(key, &shown_value);
    Redactor::RedactText(&shown_key);
    (*session.mutable_labels())[shown_key] = std::move(shown_value);
  }
}

void SetCommand(v1::Session& session, const std::vector<std::string>& argv) {
  Event event;  // shown and stored like an exec's arguments, so secrets go the same way
  size_t kept = 0;
  for (const std::string& word : argv) {
    if ((kept += word.size() + 1) > kMaxCommand) break;
    event.mutable_exec()->add_argv(word);
  }
  Redactor().Redact(&event);
  for (std::string& word : *event.mutable_exec()->mutable_argv()) session.add_command(std::move(word));
}

absl::string_view RoleName(Role role) {
  switch (role) {
    case Role::kAdmin:
      return "admin";
    case Role::kUser:
      return "user";
    case Role::kAgent:
      break;
  }
  return "agent";
}

SessionManager::SessionManager(SessionDeps deps, SessionLimits limits)
    : deps_(std::move(deps)), limits_(limits) {
  deps_.policies.SetNotice([this](const std::string& id, v1::SessionChange::What what,
                                  const std::string& detail) { OnPolicyNotice(id, what, detail); });
  deps_.policies.SetLimits(
      [this](const std::string& id, const policy::ResourceLimits& l) { return LimitsMissing(id, l); },
      [this](const policy::Snapshot& snapshot) {
        return CheckLimits(snapshot, HostMissing(snapshot.limits()));
      });
}

SessionManager::~SessionManager() {
  *alive_ = false;
  deps_.policies.SetNotice(nullptr);
  deps_.policies.SetLimits(nullptr, nullptr);
  for (const auto& [id, state] : sessions_) {
    deps_.cgroups.Unwatch(id);
    ForgetClient(state);
  }
}

absl::Status SessionManager::CheckMayStart(const Caller& caller) const {
  if (caller.role == Role::kAgent) {
    return Refusal(StatusCode::kPermissionDenied, "IN_A_SESSION",
                   "this process is inside a session; a session cannot start or attach another",
                   "run the command directly: it is recorded already");
  }
  const size_t own = std::count_if(sessions_.begin(), sessions_.end(),
                                   [&](const auto& s) { return s.second->info.uid() == caller.uid; });
  if (own >= limits_.sessions_per_uid || sessions_.size() >= limits_.sessions) {
    return Refusal(StatusCode::kResourceExhausted, "TOO_MANY_SESSIONS",
                   absl::StrCat("uid ", caller.uid, " has ", own, " sessions open, the limit"),
                   "end some with 'agentmon session stop'");
  }
  return absl::OkStatus();
}

absl::StatusOr<SessionManager::StatePtr> SessionManager::Make(uid_t uid, v1::Session::Origin origin) {
  auto state = std::make_shared<SessionState>();
  do {
    state->info.set_id(NewId());
  } while (sessions_.count(state->info.id()) != 0);
  state->info.set_uid(uid);
  state->info.set_origin(origin);
  state->info.set_state(v1::Session::STARTING);
  state->info.set_started_ns(absl::ToUnixNanos(deps_.clock.Wall()));
  // A scope begins with a process, so its cgroup comes with that.
  if (deps_.listeners != nullptr)
    RETURN_IF_ERROR(BeginByListener(state));
  else if (origin != v1::Session::WATCH && deps_.scopes == nullptr)
    RETURN_IF_ERROR(MakeCgroup(state));
  for (const v1::SourceState& source : deps_.observation.Sources()) {
    // Where the policy stops nothing, these have nothing to do.
    if (source.source() == v1::RESOLVER || source.source() == v1::NFLOG || source.source() == v1::PROXY)
      continue;
    v1::SourceState* own = state->info.add_sources();
    *own = source;
    own->clear_events();  // of the session from here on
    own->clear_lost();
  }
  sessions_[state->info.id()] = state;
  return state;
}

void SessionManager::Start(const Caller& caller, const v1::StartRequest& request,
                           Done<v1::StartResponse> done) {
  absl::Status may = CheckMayStart(caller);
  if (may.ok()) may = CheckStartFields(request.name(), request.workspace(), request.labels());
  if (may.ok() && request.ByteSizeLong() - request.policy().ByteSizeLong() > kMaxCommand * 4) {
    may = TooBig("the request is larger than 256 KiB");
  }
  if (may.ok() && caller.uid == 0 && !request.allow_root()) {
    may = Refusal(StatusCode::kPermissionDenied, "ROOT", "root may not run an agent",
                  "run it as the user whose work it does, or pass --allow-root");
  }
  if (!may.ok()) return done(may);
  deps_.policies.Prepare(
      caller.uid, request.workspace(), request.policy(),
      [this, alive = alive_, caller, request, done](absl::StatusOr<Policies::PreparedPtr> policy) {
        if (!*alive) return;
        if (!policy.ok()) return done(policy.status());
        done(StartPrepared(caller, request, *policy));
      });
}

absl::StatusOr<v1::StartResponse> SessionManager::StartPrepared(const Caller& caller,
                                                                const v1::StartRequest& request,
                                                                const Policies::PreparedPtr& policy) {
  RETURN_IF_ERROR(CheckMayStart(caller));  // others may have started meanwhile
  const policy::Snapshot& snapshot = *policy->compiled.snapshot;
  RETURN_IF_ERROR(CheckLimits(snapshot, HostMissing(snapshot.limits())));
  ASSIGN_OR_RETURN(const StatePtr state, Make(caller.uid, v1::Session::RUN));
  agentmon::Describe(request.name(), request.workspace(), request.labels(), state->info);
  SetCommand(state->info, {request.command().begin(), request.command().end()});
  state->token = RandomBytes(32);
  by_token_[state->token] = state;
  BeginPolicy(state, policy);
  KeepPrivileges(state, snapshot);
  if (const absl::Status limited = state->cgroup.has_value() ? BeginLimits(state) : absl::OkStatus();
      !limited.ok()) {
    End(state, "its limits could not be set");
    return limited;
  }
  if (IsHeldByListener(*state)) NoteLimits(state, snapshot.limits(), HostMissing(snapshot.limits()));
  Save(state);
  // A session that has ended by then is gone, and its descriptors with it.
  deps_.core.PostAfter(limits_.attach_timeout, [this, alive = alive_, held = std::weak_ptr(state)] {
    const StatePtr late = held.lock();
    if (*alive && late != nullptr && !late->ended && !late->populated_once && !late->attaching) {
      End(late, "its first process never came");
    }
  });
  state->client_pid = caller.pid;
  WatchClient(state, caller);
  if (deps_.listeners == nullptr) LockCgroupsEarly();
  v1::StartResponse response;
  response.set_session(state->info.id());
  response.set_token(state->token);
  for (const v1::SourceState& source : state->info.sources()) {
    if (source.source() == v1::FANOTIFY && source.active()) response.set_mount_namespace(true);
  }
  return response;
}

// Nobody else has the token: without its client the session can only wait for the end of its time.
void SessionManager::WatchClient(const StatePtr& state, const Caller& caller) {
  if (caller.pidfd == nullptr) return;
  // A duplicate: several sessions may have the same client.
  state->client = UniqueFd(::fcntl(caller.pidfd->get(), F_DUPFD_CLOEXEC, 3));
  if (!state->client.valid()) return;
  const absl::Status watched = deps_.core.WatchFd(state->client.get(), [this, state] {
    ForgetClient(state);
    if (!state->attaching) End(state, "its client ended before its first process came");
  });
  if (!watched.ok()) state->client.Reset();
}

void SessionManager::ForgetClient(const StatePtr& state) {
  if (state->client.valid()) deps_.core.UnwatchFd(state->client.get());
  state->client.Reset();
}

void SessionManager::Attach(const Caller& caller, const v1::AttachRequest& request,
                            Done<v1::AttachResponse> done) {
  const auto it = by_token_.find(request.token());
  if (it == by_token_.end() || it->second->info.uid() != caller.uid || it->second->attaching ||
      it->second->shim_pid != 0) {
    return done(Refusal(StatusCode::kPermissionDenied, "BAD_TOKEN", "this token opens no session",
                        "tokens are for one use, within 30 s, by the user who asked for the session"));
  }
  if (caller.role == Role::kAgent) {
    return done(
        Refusal(StatusCode::kPermissionDenied, "IN_A_SESSION", "this process is in a session already"));
  }
  const StatePtr state = it->second;
  state->attaching = true;
  const std::string no_namespace = request.namespace_error().substr(0, 512);
  const auto finish = [this, alive = alive_, state, caller, no_namespace, done](const absl::Status& moved) {
    if (*alive) FinishAttach(state, caller, no_namespace, moved, done);
  };
  if (IsHeldByListener(*state)) return finish(absl::OkStatus());
  if (!state->cgroup.has_value()) {
    return BeginScope(state, caller.pid, [this, state, caller, finish](const absl::Status& placed) {
      // A plain cgroup has nobody in it yet.
      const bool moves = placed.ok() && !state->ended && state->info.unit().empty();
      if (!moves) return finish(placed);
      if (!MoveInto(state, caller, finish)) finish(absl::ResourceExhaustedError("too many sessions start"));
    });
  }
  if (!MoveInto(state, caller, finish)) {
    state->attaching = false;
    done(Refusal(StatusCode::kResourceExhausted, "BUSY", "too many sessions start at once", "try again"));
  }
}

void SessionManager::FinishAttach(const StatePtr& state, const Caller& caller,
                                  const std::string& no_namespace, absl::Status moved,
                                  const Done<v1::AttachResponse>& done) {
  state->attaching = false;
  if (state->ended) {
    return done(Refusal(StatusCode::kAborted, "ENDED", "the session was stopped before it began"));
  }
  if (!moved.ok()) {
    End(state, "its first process could not be moved into it");
    return done(WithContext(moved, "move the agent into its session"));
  }
  ForgetClient(state);
  if (IsHeldByListener(*state)) HoldByFirstProcess(state, caller);
  state->shim_pid = caller.pid;
  state->populated_once = true;
  if (!state->keeps_privileges) {
    SetSource(state, v1::FANOTIFY,
              no_namespace.empty() ? AddMounts(state, caller.pid) : absl::UnavailableError(no_namespace));
  }
  AddRules(state, caller.pid);
  PlanShim(state, caller.uid == 0);
  CheckPrivileges(state, [this, alive = alive_, state, done](const absl::Status& holds) {
    if (!*alive) return;
    if (holds.ok() && !state->ended) return BeginRunning(state, done);
    if (!state->ended) End(state, "nothing would hold it");
    done(holds.ok() ? Refusal(StatusCode::kAborted, "ENDED", "the session was stopped before it began")
                    : holds);
  });
}

// Its first process is in it, and waits for the plan.
void SessionManager::BeginRunning(const StatePtr& state, const Done<v1::AttachResponse>& done) {
  state->info.mutable_first_process()->set_pid(state->shim_pid);
  deps_.policies.SetFirstProcess(state->info.id(), state->shim_pid);
  state->info.set_state(v1::Session::RUNNING);
  Save(state);
  Emit(*state, v1::SessionChange::STARTED, "");
  for (const v1::SourceState& source : state->info.sources()) {
    if (!source.active()) {
      Emit(*state, v1::SessionChange::SOURCE_INACTIVE,
           absl::StrCat(SourceName(source.source()), ": ", source.why()));
    }
  }
  TellGap(*state);
  FollowLossAction(state);
  v1::AttachResponse response;
  response.set_session(state->info.id());
  response.set_notify(ActiveSources(state->info).count(v1::NOTIFY) != 0);
  *response.mutable_plan() = state->plan;
  done(response);
  OnCgroupChange(state);  // it may have ended by now
}

absl::Status SessionManager::AddMounts(const StatePtr& state, pid_t pid) {
  std::shared_ptr<Gate> gate = deps_.policies.GateOf(state->info.id());
  if (gate != nullptr && !gate->armed()) gate.reset();
  return deps_.observation.AddMounts(state->cgroup_id, pid, std::move(gate));
}

// Where the policy stops nothing there is nothing to tell the kernel.
void SessionManager::AddRules(const StatePtr& state, pid_t pid) {
  std::shared_ptr<Gate> gate = deps_.policies.GateOf(state->info.id());
  if (gate == nullptr || !gate->armed() || ActiveSources(state->info).count(v1::LSM) == 0) return;
  SetSource(state, v1::LSM, deps_.observation.AddRules(state->cgroup_id, pid, std::move(gate)));
}

bool SessionManager::SetSource(const StatePtr& state, v1::Source source, const absl::Status& status) {
  for (v1::SourceState& s : *state->info.mutable_sources()) {
    if (s.source() != source || !s.active()) continue;
    s.set_active(status.ok());
    if (!status.ok()) s.set_why(std::string(status.message()));
    return true;
  }
  return false;
}

absl::StatusOr<SessionManager::StatePtr> SessionManager::Find(const Caller& caller,
                                                              const std::string& which) const {
  std::vector<StatePtr> exact, loose;
  for (const auto& [id, state] : sessions_) {
    const bool own = caller.role == Role::kAgent ? id == caller.session : caller.MaySee(state->info.uid());
    if (!own) continue;
    if (id == which) exact.push_back(state);
    if (which.empty() || state->info.name() == which || (which.size() >= 4 && absl::StartsWith(id, which))) {
      loose.push_back(state);
    }
  }
  std::vector<StatePtr>& found = exact.empty() ? loose : exact;
  if (found.empty()) {
    return Refusal(StatusCode::kNotFound, "NO_SUCH_SESSION",
                   which.empty() ? "no session is running" : absl::StrCat("no running session ", which),
                   "'agentmon session list --all' shows what there is");
  }
  if (which.empty()) {
    return *std::max_element(found.begin(), found.end(), [](const StatePtr& a, const StatePtr& b) {
      return a->info.started_ns() < b->info.started_ns();
    });
  }
  if (found.size() > 1) {
    std::vector<std::string> ids;
    for (const StatePtr& state : found) ids.push_back(state->info.id());
    return Refusal(StatusCode::kInvalidArgument, "AMBIGUOUS",
                   absl::StrCat(which, " means several sessions: ", absl::StrJoin(ids, ", ")));
  }
  return found.front();
}

v1::Session SessionManager::Describe(const SessionState& state) const {
  v1::Session info = state.info;
  *info.mutable_policy() = deps_.policies.Describe(info.id(), false, {});
  if (state.cgroup.has_value()) {
    const auto pids = state.cgroup->Processes();
    if (pids.ok()) info.set_processes(static_cast<uint32_t>(pids->size()));
  }
  if (IsHeldByListener(state))
    info.set_processes(static_cast<uint32_t>(deps_.listeners->Processes(info.id()).size()));
  if (state.resources != nullptr) *info.mutable_usage() = state.resources->Look();
  return info;
}

std::vector<v1::Session> SessionManager::List(const Caller& caller) const {
  std::vector<v1::Session> list;
  for (const auto& [id, state] : sessions_) {
    if (caller.MaySee(state->info.uid())) list.push_back(Describe(*state));
  }
  std::sort(list.begin(), list.end(),
            [](const v1::Session& a, const v1::Session& b) { return a.started_ns() > b.started_ns(); });
  return list;
}

absl::StatusOr<v1::Session> SessionManager::Get(const Caller& caller, const std::string& which) const {
  ASSIGN_OR_RETURN(const StatePtr state, Find(caller, which));
  v1::Session session = Describe(*state);
  *session.mutable_policy() = deps_.policies.Describe(session.id(), true, ActiveSources(session));
  return session;
}

absl::StatusOr<std::string> SessionManager::IdOf(const Caller& caller, const std::string& which) const {
  ASSIGN_OR_RETURN(const StatePtr state, Find(caller, which));
  return state->info.id();
}

absl::StatusOr<uint64_t> SessionManager::CgroupOf(const Caller& caller, const std::string& which) const {
  ASSIGN_OR_RETURN(const StatePtr state, Find(caller, which));
  return state->cgroup_id;
}

std::string SessionManager::SessionOfCgroup(uint64_t cgroup_id) const {
  const auto it = by_cgroup_.find(cgroup_id);
  return it == by_cgroup_.end() ? "" : it->second->info.id();
}

void SessionManager::OnEvent(const Event& event) {
  const auto it = sessions_.find(event.session());
  if (it == sessions_.end()) return;
  const StatePtr state = it->second;
  state->info.set_events(state->info.events() + 1);
  if (deps_.listeners != nullptr && event.source() == v1::NOTIFY)
    deps_.listeners->Saw(event.session(), event.process().pid(), event.kind() == v1::EXEC);
  if (state->resources != nullptr && event.source() != v1::DAEMON && event.source() != v1::CGROUP)
    OnAct(*state, event);
  for (v1::SourceState& source : *state->info.mutable_sources()) {
    if (source.source() != event.source()) continue;
    if (event.kind() == v1::LOSS)
      source.set_lost(source.lost() + event.loss().lost());
    else
      source.set_events(source.events() + 1);
  }
  if (event.judgement().decision() == v1::DENY) state->info.set_denials(state->info.denials() + 1);
  if (event.kind() == v1::EXIT && state->info.origin() == v1::Session::WATCH &&
      deps_.observation.WatchEnded(state->cgroup_id)) {
    deps_.core.Post([this, alive = alive_, state] {
      if (*alive) End(state, "the watched processes ended");
    });
  }
}

// The file first: that of an ended session goes once the end is stored, which may be at once, or much later
// when the disk is full.
void SessionManager::Save(const StatePtr& state) {
  if (state->info.origin() != v1::Session::WATCH) {
    if (const absl::Status s = deps_.files.Write(state->info); !s.ok()) LogWarning(s.message());
  }
  deps_.save(state->info);
}

Event SessionManager::OwnEvent(const SessionState& state, v1::EventKind kind) const {
  Event event;
  event.set_wall_ns(absl::ToUnixNanos(deps_.clock.Wall()));
  event.set_boot_ns(deps_.clock.BootNs());
  event.set_session(state.info.id());
  event.set_kind(kind);
  event.set_source(v1::DAEMON);
  event.set_uid(state.info.uid());
  event.set_count(1);
  return event;
}

void SessionManager::ReportLoss(uint64_t cgroup_id, v1::Source source, absl::string_view where,
                                uint64_t lost) {
  const auto it = by_cgroup_.find(cgroup_id);
  if (it == by_cgroup_.end()) return;
  for (v1::SourceState& own : *it->second->info.mutable_sources()) {
    if (own.source() == source) own.set_lost(own.lost() + lost);
  }
  Event event = OwnEvent(*it->second, v1::LOSS);
  event.mutable_loss()->set_source(source);
  event.mutable_loss()->set_where(std::string(where));
  event.mutable_loss()->set_lost(lost);
  deps_.events.OnEvent(event);
}

void SessionManager::Emit(const SessionState& state, v1::SessionChange::What what, absl::string_view detail,
                          uint64_t gap_ns) {
  Event event = OwnEvent(state, v1::SESSION);
  if (state.info.has_first_process()) *event.mutable_process() = state.info.first_process();
  event.mutable_session_change()->set_what(what);
  event.mutable_session_change()->set_detail(std::string(detail));
  event.mutable_session_change()->set_gap_ns(gap_ns);
  deps_.events.OnEvent(event);
}

}  // namespace agentmon
