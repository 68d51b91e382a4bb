// From a client's request to the agent's first instruction: Start, Attach, and what both are checked for.
#include <fcntl.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/random.h"
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
    return done(
        Refusal(StatusCode::kPermissionDenied, "BAD_TOKEN", "this token opens no session",
                "tokens are for one use, within 30 s, by the user who asked for the session; where agentmond "
                "was restarted meanwhile, start it again"));
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

}  // namespace agentmon
