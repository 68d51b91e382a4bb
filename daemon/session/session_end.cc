// Stopping and ending: TERM, grace, cgroup.kill; then everything is removed in reverse order.
#include <signal.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/base/refusal.h"
#include "common/base/status.h"
#include "common/kernel/pid_fd.h"
#include "daemon/session/session_state.h"

namespace agentmon {
namespace {

constexpr absl::Duration kLastRecords = absl::Milliseconds(20);
constexpr absl::Duration kManagerTime = absl::Seconds(10);
constexpr int kKillRounds = 40;    // 2 s
constexpr int kSettleTries = 150;  // 3 s: then what still waits is given up

// TERM to every process of the cgroup. A pid is held by descriptor and found in the cgroup after that,
// so that a reused number is never signalled.
void TerminateAll(const Cgroup& cgroup, const ProcFs& proc, const std::string& relative) {
  const auto pids = cgroup.Processes();
  if (!pids.ok()) return;
  for (const pid_t pid : *pids) {
    const auto pidfd = PidFd::Open(pid);
    if (!pidfd.ok()) continue;
    const auto path = proc.CgroupPath(pid);
    if (path.ok() && (*path == relative || absl::StartsWith(*path, relative + "/"))) {
      pidfd->Signal(SIGTERM).IgnoreError();
      pidfd->Signal(SIGCONT).IgnoreError();  // a stopped process must see the TERM
    }
  }
}

}  // namespace

void SessionManager::OnCgroupChange(const StatePtr& state) {
  if (state->ended || state->ending || !state->populated_once || !state->cgroup.has_value()) return;
  const auto populated = state->cgroup->Populated();
  if (populated.ok() && *populated) return;
  state->ending = true;
  if (state->resources != nullptr) state->resources->Look();
  EndWhenSettled(state, kSettleTries);
}

// Records of its last acts may still be with the threads that read them, or wait in the kernel for these.
void SessionManager::EndWhenSettled(const StatePtr& state, int tries_left) {
  deps_.core.PostAfter(kLastRecords, [this, alive = alive_, state, tries_left] {
    if (!*alive || state->ended) return;
    if (tries_left > 0 && !deps_.observation.Settled(state->cgroup_id))
      return EndWhenSettled(state, tries_left - 1);
    End(state, state->stopped_by.empty() ? "its last process ended" : state->stopped_by);
  });
}

void SessionManager::EndEmpty() {
  std::vector<StatePtr> states;
  for (const auto& [id, state] : sessions_) states.push_back(state);
  for (const StatePtr& state : states) {
    if (IsHeldByListener(*state)) {
      if (!state->populated_once) End(state, "the daemon stopped before its first process came");
      continue;
    }
    if (!state->cgroup.has_value()) {
      End(state, "the daemon stopped");
      continue;
    }
    const auto populated = state->cgroup->Populated();
    if (!populated.ok() || *populated) continue;
    End(state, state->populated_once ? "its last process ended"
                                     : "the daemon stopped before its first process came");
  }
}

void SessionManager::Stop(const Caller& caller, const v1::StopRequest& request, Done<v1::StopResponse> done) {
  if (caller.role == Role::kAgent) {
    return done(Refusal(absl::StatusCode::kPermissionDenied, "IN_A_SESSION",
                        "a process inside a session may not stop sessions"));
  }
  std::vector<StatePtr> targets;
  if (request.all()) {
    for (const auto& [id, state] : sessions_) {
      if (caller.MaySee(state->info.uid())) targets.push_back(state);
    }
  } else {
    if (request.session().empty()) {
      return done(Refusal(absl::StatusCode::kInvalidArgument, "NO_SESSION_NAMED", "no session was named",
                          "name one, or pass --all"));
    }
    auto state = Find(caller, request.session());
    if (!state.ok()) return done(state.status());
    targets.push_back(*state);
  }
  auto waiter = std::make_shared<Waiter>();
  waiter->open = targets.size();
  waiter->done = std::move(done);
  for (const StatePtr& state : targets) waiter->ids.push_back(state->info.id());
  for (const StatePtr& state : targets) waiters_.emplace(state->info.id(), waiter);
  for (const StatePtr& state : targets)
    BeginStop(state, request.grace_ms(), absl::StrCat("stopped by uid ", caller.uid));
  if (targets.empty()) waiter->done(v1::StopResponse());
}

// grace_ms as in StopRequest.
void SessionManager::BeginStop(const StatePtr& state, int64_t grace_ms, const std::string& reason) {
  if (state->ended) return;
  state->stopped_by = reason;
  const bool by_listener = IsHeldByListener(*state);
  if ((!state->cgroup.has_value() && !by_listener) || !state->populated_once)
    return End(state, state->stopped_by);
  if (state->info.state() != v1::Session::STOPPING) {
    state->info.set_state(v1::Session::STOPPING);
    Emit(*state, v1::SessionChange::STOP_REQUESTED, state->stopped_by);
  }
  // A session that ends within the grace is gone, and its descriptors with it.
  const auto kill = [this, alive = alive_, held = std::weak_ptr(state), by_listener] {
    const StatePtr left = held.lock();
    if (!*alive || left == nullptr || left->ended) return;
    if (by_listener) return KillByListener(left, kKillRounds);
    if (const absl::Status s = left->cgroup->Kill(); !s.ok())
      LogError("stop ", left->info.id(), ": ", s.message());
  };
  if (grace_ms < 0) return kill();
  if (by_listener)
    deps_.listeners->Signal(state->info.id(), SIGTERM);
  else
    TerminateAll(*state->cgroup, proc_, state->info.cgroup());
  const absl::Duration grace =
      grace_ms == 0 ? limits_.default_grace : absl::Milliseconds(std::min<int64_t>(grace_ms, 600'000));
  deps_.core.PostAfter(grace, kill);
}

void SessionManager::End(const StatePtr& state, const std::string& reason) {
  if (state->ended) return;
  ForgetClient(state);
  // What is on its way from the kernel still belongs to the session: take it in first.
  if (state->cgroup_id != 0) deps_.observation.RemoveSession(state->cgroup_id);
  deps_.last_events(state->info.id());
  EndResources(state);
  state->ended = true;
  state->info.set_state(v1::Session::ENDED);
  state->info.set_ended_ns(absl::ToUnixNanos(deps_.clock.Wall()));
  state->info.set_end_reason(reason);
  state->info.set_processes(0);
  if (sessions_.count(state->info.id()) != 0) {
    *state->info.mutable_policy() = deps_.policies.Describe(state->info.id(), false, {});
  }
  Emit(*state, v1::SessionChange::ENDED, reason);
  const std::string id = state->info.id();
  if (deps_.listeners != nullptr) deps_.listeners->Forget(id);
  if (!state->token.empty()) by_token_.erase(state->token);
  by_cgroup_.erase(state->cgroup_id);
  sessions_.erase(id);
  deps_.policies.End(id);
  if (state->cgroup.has_value()) {
    const bool is_scope = deps_.cgroups.IsScope(id);
    deps_.cgroups.Unwatch(id);
    deps_.cgroups.Forget(id);
    if (is_scope)
      LeaveToManager(state);
    else
      RemoveCgroup(state, 50);
  }
  Save(state);
  const auto [first, last] = waiters_.equal_range(id);
  std::vector<std::shared_ptr<Waiter>> ready;
  for (auto it = first; it != last; ++it) {
    if (--it->second->open == 0) ready.push_back(it->second);
  }
  waiters_.erase(first, last);
  for (const auto& waiter : ready) {
    v1::StopResponse response;
    for (const std::string& stopped : waiter->ids) response.add_sessions(stopped);
    waiter->done(response);
  }
}

// A scope whose directory is gone before systemd has read that it is empty counts as running there: a
// shutdown waits for it until its timeout. So systemd removes it, and we only what it has left.
void SessionManager::LeaveToManager(const StatePtr& state) {
  deps_.core.PostAfter(kManagerTime, [this, alive = alive_, state] {
    if (*alive) RemoveCgroup(state, 50);
  });
}

void SessionManager::RemoveCgroup(const StatePtr& state, int tries_left) {
  const absl::Status removed = state->cgroup->RemoveTree();
  if (removed.ok()) return;
  if (tries_left == 0) return LogError("remove ", state->info.id(), ": ", removed.message());
  // EBUSY for a moment while the kernel still takes down the last process.
  deps_.core.PostAfter(absl::Milliseconds(100), [this, alive = alive_, state, tries_left] {
    if (*alive) RemoveCgroup(state, tries_left - 1);
  });
}

}  // namespace agentmon
