// What a session and its policy have to do with each other; the policies themselves: daemon/policy.
#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/base/refusal.h"
#include "common/base/status.h"
#include "daemon/session/session_state.h"

namespace agentmon {

std::set<v1::Source> ActiveSources(const v1::Session& session) {
  std::set<v1::Source> sources;
  for (const v1::SourceState& source : session.sources()) {
    if (source.active()) sources.insert(source.source());
  }
  return sources;
}

absl::Status CheckEnforceable(const std::string& unenforceable) {
  if (unenforceable.empty()) return absl::OkStatus();
  return Refusal(absl::StatusCode::kFailedPrecondition, "NOT_ENFORCEABLE",
                 absl::StrCat("this host cannot enforce all of the policy: ", unenforceable,
                              "; 'enforcement: best_effort' in that file runs it all the same"));
}

void SessionManager::BeginPolicy(const StatePtr& state, const Policies::PreparedPtr& policy) {
  deps_.policies.Begin(state->info, policy);
  *state->info.mutable_policy() = deps_.policies.Describe(state->info.id(), false, {});
}

void SessionManager::TellGap(const SessionState& state) {
  TellMissingLimits(state);
  const std::string gap = deps_.policies.FindGap(state.info.id(), ActiveSources(state.info));
  if (gap.empty()) return;
  LogInfo("session ", state.info.id(), ": ", gap);
  Emit(state, v1::SessionChange::NOT_ENFORCED, gap);
}

void SessionManager::OnPolicyNotice(const std::string& id, v1::SessionChange::What what,
                                    const std::string& detail) {
  const auto it = sessions_.find(id);
  if (it == sessions_.end()) return;
  const StatePtr& state = it->second;
  *state->info.mutable_policy() = deps_.policies.Describe(id, false, {});
  Emit(*state, what, detail);
  if (what == v1::SessionChange::POLICY_CHANGED) {
    const absl::Status followed = deps_.observation.PolicyChanged(state->cgroup_id);
    if (!followed.ok() &&
        SetSource(state, v1::LSM, WithContext(followed, "it has the rules of the policy before")))
      Emit(*state, v1::SessionChange::SOURCE_INACTIVE, absl::StrCat("lsm: ", followed.message()));
    FollowConnects(state);
    FollowLimits(state);
    FollowLossAction(state);
    TellGap(*state);
  }
  Save(state);
}

// What its policy says of a time without a daemon.
void SessionManager::FollowLossAction(const StatePtr& state) {
  const auto snapshot = deps_.policies.SnapshotOf(state->info.id());
  if (snapshot == nullptr || (!state->cgroup.has_value() && !IsHeldByListener(*state))) return;
  const absl::string_view wanted = snapshot->on_daemon_loss();
  const LossAction action = wanted == "kill"     ? LossAction::kKill
                            : wanted == "freeze" ? LossAction::kFreeze
                                                 : LossAction::kNone;
  if (action == LossAction::kNone && !state->cgroup.has_value()) return;
  const absl::Status set =
      state->cgroup.has_value()
          ? deps_.observation.SetLossAction(*state->cgroup, action)
          : absl::UnavailableError("the session has no cgroup that the holder could stop");
  if (set.ok()) return;
  const std::string what = absl::StrCat("on_daemon_loss: ", wanted, ": ", set.message());
  LogWarning("session ", state->info.id(), ": ", what);
  Emit(*state, v1::SessionChange::NOT_ENFORCED, what);
}

// What could not be switched was closed: whatever the old policy allowed, the new one might deny.
void SessionManager::FollowConnects(const StatePtr& state) {
  if (!state->judges_connects) return;
  const std::string& id = state->info.id();
  const absl::Status judged =
      deps_.observation.JudgeConnects(state->cgroup_id, deps_.policies.SnapshotOf(id));
  if (judged.ok()) return;
  LogError("session ", id, ": all connections are denied: ", judged.message());
  Emit(*state, v1::SessionChange::NOT_ENFORCED,
       absl::StrCat("all connections are denied, because the new rules could not be put in place: ",
                    judged.message()));
}

void SessionManager::SetPolicy(const Caller& caller, const v1::SetPolicyRequest& request,
                               Done<v1::SetPolicyResponse> done) {
  if (caller.role == Role::kAgent) {
    return done(Refusal(absl::StatusCode::kPermissionDenied, "IN_A_SESSION",
                        "a process inside a session may not change its policy"));
  }
  const auto state = Find(caller, request.session());
  if (!state.ok()) return done(state.status());
  deps_.policies.SetPolicy((*state)->info.id(), request.policy(),
                           [this, alive = alive_, state = *state, done](absl::StatusOr<bool> set) {
                             if (!*alive) return;
                             if (!set.ok()) return done(set.status());
                             deps_.observation.WhenBackstopFollows([this, alive, state, done] {
                               if (!*alive) return;
                               v1::SetPolicyResponse response;
                               *response.mutable_session() = Describe(*state);
                               done(response);
                             });
                           });
}

}  // namespace agentmon
