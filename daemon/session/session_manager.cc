#include "daemon/session/session_manager.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "common/base/log.h"
#include "common/base/refusal.h"
#include "common/base/status.h"
#include "daemon/event/kinds.h"
#include "daemon/session/session_state.h"

namespace agentmon {

using absl::StatusCode;

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
  deps_.policies.SetUnmarked([this](const std::string& id) {
    const auto session = sessions_.find(id);
    return session == sessions_.end() ? std::vector<UnmarkedMount>()
                                      : deps_.observation.Unmarked(session->second->cgroup_id);
  });
}

SessionManager::~SessionManager() {
  *alive_ = false;
  deps_.policies.SetNotice(nullptr);
  deps_.policies.SetLimits(nullptr, nullptr);
  deps_.policies.SetUnmarked(nullptr);
  for (const auto& [id, state] : sessions_) {
    deps_.cgroups.Unwatch(id);
    ForgetClient(state);
  }
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
  if (event.judgement().decision() == v1::DENY) {
    state->info.set_denials(state->info.denials() + 1);
    if (!event.judgement().enforced())
      state->info.set_denials_not_enforced(state->info.denials_not_enforced() + 1);
  }
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
