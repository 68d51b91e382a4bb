// Sessions that their seccomp listeners hold, in place of cgroups: daemon/session/listener_sessions.h.
#include <fcntl.h>
#include <signal.h>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/base/refusal.h"
#include "common/base/status.h"
#include "daemon/session/session_state.h"

namespace agentmon {
namespace {

constexpr absl::Duration kKillRound = absl::Milliseconds(50);
constexpr char kNoCgroup[] = "the session has no cgroup: its daemon is not root's";

}  // namespace

bool SessionManager::IsHeldByListener(const SessionState& state) const {
  return deps_.listeners != nullptr && !state.cgroup.has_value();
}

absl::Status SessionManager::BeginByListener(const StatePtr& state) {
  for (const v1::SourceState& source : deps_.observation.Sources()) {
    if (source.source() != v1::NOTIFY || source.active()) continue;
    return Refusal(absl::StatusCode::kFailedPrecondition, "NO_LISTENER",
                   absl::StrCat("no session can be held: ", source.why()));
  }
  state->cgroup_id = ListenerNumber(state->info.id());
  RETURN_IF_ERROR(deps_.observation.AddSession(state->cgroup_id, -1));
  by_cgroup_[state->cgroup_id] = state;
  return absl::OkStatus();
}

void SessionManager::HoldByFirstProcess(const StatePtr& state, const Caller& caller) {
  deps_.listeners->Saw(state->info.id(), caller.pid, true);
  if (caller.pidfd == nullptr) return;
  state->client = UniqueFd(::fcntl(caller.pidfd->get(), F_DUPFD_CLOEXEC, 3));
  if (!state->client.valid()) return;
  const absl::Status watched = deps_.core.WatchFd(state->client.get(), [this, state] {
    ForgetClient(state);
    End(state, "its first process ended before it had a listener");
  });
  if (!watched.ok()) state->client.Reset();
}

void SessionManager::OnListenerGone(uint64_t number) {
  const auto it = by_cgroup_.find(number);
  if (it == by_cgroup_.end() || !IsHeldByListener(*it->second)) return;
  const StatePtr state = it->second;
  if (state->ended || state->ending) return;
  state->ending = true;
  EndWhenSettled(state, 0);
}

// Who forks meanwhile is found in the next round. The listener says when nobody is left.
void SessionManager::KillByListener(const StatePtr& state, int rounds_left) {
  if (state->ended || state->ending) return;
  if (rounds_left == 0) {
    const size_t left = deps_.listeners->Processes(state->info.id()).size();
    LogError("stop ", state->info.id(), ": its listener is still in use, ", left,
             " of its processes are known");
    return;
  }
  deps_.listeners->SeekByEnvironment(state->info.id());
  deps_.listeners->Signal(state->info.id(), SIGKILL);
  deps_.core.PostAfter(kKillRound, [this, alive = alive_, state, rounds_left] {
    if (*alive) KillByListener(state, rounds_left - 1);
  });
}

MissingLimits SessionManager::HostMissing(const policy::ResourceLimits& limits) const {
  if (deps_.listeners == nullptr) return deps_.host_limits.Missing(limits);
  MissingLimits all;
  for (const std::string& key : GivenLimits(limits)) all[key] = kNoCgroup;
  return all;
}

// What its listener's holder has kept is taken over afterwards; where that is nothing, the session is over.
void SessionManager::RecoverByListener(const v1::Session& known, uint64_t daemon_lost_ns) {
  auto state = std::make_shared<SessionState>();
  state->info = known;
  if (known.state() == v1::Session::STARTING)
    return End(state, "the daemon ended before its first process came");
  state->cgroup_id = ListenerNumber(known.id());
  state->populated_once = true;
  state->armed = true;
  state->info.set_state(v1::Session::RUNNING);
  sessions_[known.id()] = state;
  by_cgroup_[state->cgroup_id] = state;
  deps_.listeners->SeekByEnvironment(known.id());
  deps_.policies.Recover(state->info);
  RecoverProxy(state);
  deps_.policies.SetControls(known.id(), ActiveControls(state->info));
  const uint64_t now = static_cast<uint64_t>(deps_.clock.BootNs());
  const uint64_t gap = daemon_lost_ns > 0 && now > daemon_lost_ns ? now - daemon_lost_ns : 0;
  Emit(*state, v1::SessionChange::ADOPTED, "found again by its listener");
  Emit(*state, v1::SessionChange::GAP, "the daemon was away", gap);
  deps_.policies.FindGap(known.id(), ActiveSources(state->info));  // told when the session began
  FollowLimits(state);
  Save(state);
}

}  // namespace agentmon
