// After a start: sessions of an earlier daemon are found by their cgroups.
#include <map>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "daemon/session/session_state.h"

namespace agentmon {

void SessionManager::Recover(uint64_t daemon_lost_ns) {
  std::map<std::string, v1::Session> known;
  for (v1::Session& session : deps_.files.ReadAll()) {
    if (session.state() == v1::Session::ENDED) {
      deps_.save(session);  // its end could not be stored any more
    } else {
      known[session.id()] = session;
    }
  }
  if (deps_.listeners != nullptr) {
    for (const auto& [id, session] : known) RecoverByListener(session, daemon_lost_ns);
    return;
  }
  for (const std::string& id : deps_.cgroups.Existing()) {
    const auto it = known.find(id);
    RecoverOne(id, it == known.end() ? std::nullopt : std::optional(it->second), daemon_lost_ns);
    known.erase(id);
  }
  // A file without a cgroup: it ended, and its cgroup was removed by hand or by the crash's last breath.
  for (const auto& [id, session] : known) {
    auto state = std::make_shared<SessionState>();
    state->info = session;
    End(state, "ended while the daemon was away");
  }
  deps_.observation.SessionMembersChanged();
}

void SessionManager::RecoverOne(const std::string& id, std::optional<v1::Session> known,
                                uint64_t daemon_lost_ns) {
  auto state = std::make_shared<SessionState>();
  if (known.has_value()) {
    state->info = *known;
  } else {
    state->info.set_id(id);
    state->info.set_uid(0);  // nobody's but the administrator's: who owned it is not known
    state->info.set_started_ns(absl::ToUnixNanos(deps_.clock.Wall()));
    state->info.set_cgroup(deps_.cgroups.RelativePath(id));
    if (deps_.cgroups.IsScope(id)) state->info.set_unit(ScopeName(id));
  }
  auto cgroup = deps_.cgroups.Open(id);
  if (!cgroup.ok()) return LogError("recover session ", id, ": ", cgroup.status().message());
  state->cgroup = std::move(*cgroup);
  state->cgroup_id = state->cgroup->id();
  state->populated_once = true;
  const auto populated = state->cgroup->Populated();
  if (!populated.ok() || !*populated) return End(state, "ended while the daemon was away");

  if (const absl::Status s = deps_.observation.AddSession(
          state->cgroup_id, deps_.cgroups.IsScope(id) ? state->cgroup->fd() : -1);
      !s.ok()) {
    LogError("session ", id, " goes on unrecorded: ", s.message());
  }
  if (const absl::Status s = deps_.cgroups.Watch(id, [this, state] { OnCgroupChange(state); }); !s.ok()) {
    LogError("session ", id, ": ", s.message());
  }
  state->info.set_state(v1::Session::RUNNING);
  sessions_[id] = state;
  by_cgroup_[state->cgroup_id] = state;
  deps_.policies.Recover(state->info);
  deps_.policies.SetControls(id, ActiveControls(state->info));
  if (ActiveControls(state->info).count("network") != 0) {
    const absl::Status judged =
        deps_.observation.JudgeConnects(state->cgroup_id, deps_.policies.SnapshotOf(id));
    state->judges_connects = judged.ok();
    if (!judged.ok())
      LogError("session ", id, ": its connections go on being judged by its last policy: ", judged.message());
  }
  if (ActiveControls(state->info).count(kUnixControl) != 0) {
    if (const absl::Status judged = deps_.observation.JudgeUnix(state->cgroup_id); !judged.ok()) {
      LogError("session ", id, ": its unix sockets are judged no more: ", judged.message());
      for (v1::ControlState& control : *state->info.mutable_controls()) {
        if (control.name() != kUnixControl) continue;
        control.set_active(false);
        control.set_why(std::string(judged.message()));
      }
      deps_.policies.SetControls(id, ActiveControls(state->info));
    }
  }
  RecoverLimits(state);
  FollowLossAction(state);
  const uint64_t now = static_cast<uint64_t>(deps_.clock.BootNs());
  const uint64_t gap = daemon_lost_ns > 0 && now > daemon_lost_ns ? now - daemon_lost_ns : 0;
  state->frozen = state->cgroup->Frozen().value_or(false);
  Emit(*state, v1::SessionChange::ADOPTED,
       state->frozen ? "found again by its cgroup; it was frozen, because no daemon was there"
                     : "found again by its cgroup");
  Emit(*state, v1::SessionChange::GAP,
       "the daemon was away; counts of repeated acts may be wrong by what happened in the second before",
       gap);
  // Its mount marks went with the daemon that made them; any process of the session has the same mounts.
  absl::Status mounts = absl::UnavailableError("no process of the session could be asked for its mounts");
  const auto pids = state->cgroup->Processes();
  if (pids.ok() && !pids->empty()) mounts = AddMounts(state, pids->front());
  SetSource(state, v1::FANOTIFY, mounts);
  if (pids.ok() && !pids->empty()) AddRules(state, pids->front());
  deps_.policies.FindGap(id, ActiveSources(state->info));  // told when the session began
  Save(state);
  OnCgroupChange(state);
}

void SessionManager::ThawRecovered() {
  for (const auto& [id, state] : sessions_) {
    if (!state->frozen) continue;
    state->frozen = false;
    if (const absl::Status s = state->cgroup->SetFrozen(false); !s.ok())
      LogError("session ", id, ": ", s.message());
  }
}

// The daemon and the holder were lost together.
void SessionManager::MarkLostListeners(const std::set<uint64_t>& served_cgroups) {
  std::vector<StatePtr> lost;
  for (const auto& [cgroup_id, state] : by_cgroup_) {
    if (served_cgroups.count(cgroup_id) != 0) continue;
    if (IsHeldByListener(*state)) lost.push_back(state);
    constexpr char kLost[] =
        "its listener was lost with the daemon and its holder: calls that it was asked about fail with "
        "ENOSYS";
    if (!SetSource(state, v1::NOTIFY, absl::UnavailableError(kLost))) continue;
    Emit(*state, v1::SessionChange::SOURCE_INACTIVE, absl::StrCat("notify: ", kLost));
    Save(state);
  }
  for (const StatePtr& state : lost) End(state, "its listener was lost while the daemon was away");
}

}  // namespace agentmon
