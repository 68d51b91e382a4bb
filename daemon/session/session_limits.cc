// What a session may use and has used; how limits are set, watched and counted: daemon/limits.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/log.h"
#include "common/base/refusal.h"
#include "common/base/status.h"
#include "daemon/session/session_state.h"

namespace agentmon {
namespace {

// Of what is missing, what a layer gives that does not say `enforcement: best_effort`.
MissingLimits Insisted(const policy::Snapshot& snapshot, const MissingLimits& missing) {
  MissingLimits insisted;
  for (const policy::CompiledLayer& layer : snapshot.layers()) {
    if (layer.enforcement != policy::Enforcement::kRequired || !policy::HoldsLimits(layer.posture)) continue;
    for (const std::string& key : GivenLimits(layer.document->limits)) {
      if (const auto it = missing.find(key); it != missing.end()) insisted.insert(*it);
    }
  }
  return insisted;
}

// Everything is given: what a new policy does not have is lifted.
policy::ResourceLimits Unknown() {
  policy::ResourceLimits all;
  all.memory_swap_max_mb = 0;
  all.max_memory_mb = all.cpu_quota_percent = all.disk_read_bps_max = all.disk_write_bps_max = all.pids_max =
      all.net_bandwidth_mbps = 1;
  return all;
}

}  // namespace

absl::Status SessionManager::CheckLimits(const policy::Snapshot& snapshot,
                                         const MissingLimits& missing) const {
  const MissingLimits insisted = Insisted(snapshot, missing);
  if (insisted.empty() || !limits_.refuse_missing_limits) return absl::OkStatus();
  return Refusal(
      absl::StatusCode::kFailedPrecondition, "LIMITS_UNAVAILABLE",
      absl::StrCat("this host cannot set limits of the policy: ", MissingText(insisted)),
      "to run without these limits, have root write 'limits: {on_unavailable: warn}' into "
      "/etc/agentmon/agentmond.yaml and reload agentmond, or say 'enforcement: best_effort' in the "
      "policy");
}

absl::Status SessionManager::BeginLimits(const StatePtr& state) {
  const auto snapshot = deps_.policies.SnapshotOf(state->info.id());
  const MissingLimits missing = deps_.host_limits.Apply(state->cgroup->path(), snapshot->limits(), {});
  RETURN_IF_ERROR(CheckLimits(*snapshot, missing));
  BeginResources(state, absl::ZeroDuration());
  NoteLimits(state, snapshot->limits(), missing);
  return absl::OkStatus();
}

void SessionManager::BeginResources(const StatePtr& state, absl::Duration age) {
  SessionResources::Reports reports;
  reports.limit = [this, alive = alive_, state](const v1::Limit& limit) {
    if (!*alive) return;
    const bool timeout = IsTimeout(limit.resource());
    Event event = OwnEvent(*state, v1::LIMIT);
    event.set_source(timeout ? v1::DAEMON : v1::CGROUP);
    *event.mutable_limit() = limit;
    deps_.events.OnEvent(event);
  };
  reports.usage = [this, alive = alive_, state](const v1::Usage& usage) {
    if (*alive) TellUsage(*state, usage);
  };
  reports.expired = [this, alive = alive_, state](const std::string& reason) {
    if (*alive && state->info.state() != v1::Session::STOPPING) BeginStop(state, 0, reason);
  };
  state->resources = deps_.resources.Begin(state->info.id(), state->cgroup->path(), age, std::move(reports));
}

void SessionManager::OnAct(SessionState& state, const Event& event) {
  deps_.resources.OnAct(state.resources, event.boot_ns());
  if (event.kind() != v1::EXIT) return;
  // What an attached process used before it came is not the session's.
  const bool whole = state.info.origin() == v1::Session::RUN;
  state.resources->OnExit(whole ? event.exit().cpu_ns() : 0, deps_.clock.BootNs());
}

void SessionManager::NoteLimits(const StatePtr& state, const policy::ResourceLimits& limits,
                                const MissingLimits& missing) {
  state->limits = limits;
  state->missing_limits = missing;
  state->info.clear_limits();
  for (std::string& line : LimitLines(limits, missing)) state->info.add_limits(std::move(line));
  deps_.resources.SetLimits(state->info.id(), limits);
}

void SessionManager::RecoverLimits(const StatePtr& state) {
  const absl::Duration age = deps_.clock.Wall() - absl::FromUnixNanos(state->info.started_ns());
  BeginResources(state, std::max(age, absl::ZeroDuration()));
  state->limits = Unknown();
  FollowLimits(state);
}

// A session with processes: a write may wait for the kernel's reclaim.
void SessionManager::FollowLimits(const StatePtr& state) {
  const auto snapshot = deps_.policies.SnapshotOf(state->info.id());
  if (snapshot != nullptr && IsHeldByListener(*state)) {
    NoteLimits(state, snapshot->limits(), HostMissing(snapshot->limits()));
    return;
  }
  if (snapshot == nullptr || state->resources == nullptr || SameLimits(state->limits, snapshot->limits()))
    return;
  const policy::ResourceLimits before = state->limits, wanted = snapshot->limits();
  NoteLimits(state, wanted, deps_.host_limits.Missing(wanted));
  const bool posted = deps_.workers.TryPost([this, alive = alive_, state, wanted, before] {
    const MissingLimits missing = deps_.host_limits.Apply(state->cgroup->path(), wanted, before);
    deps_.core.Post([this, alive, state, wanted, missing] {
      if (!*alive || state->ended) return;
      // The manager after the kernel: what is written here waits for reclaim, the manager must not.
      if (deps_.scopes != nullptr && !state->info.unit().empty())
        deps_.scopes->SetLimits(state->info.unit(), wanted, deps_.host_limits.Disks());
      if (missing == state->missing_limits) return;
      NoteLimits(state, wanted, missing);
      TellMissingLimits(*state);
      Save(state);
    });
  });
  if (!posted) {
    state->limits = before;  // the next switch of the policy tries again
    LogError("session ", state->info.id(), ": the daemon was too busy to set the new limits");
  }
}

void SessionManager::TellMissingLimits(const SessionState& state) {
  if (state.missing_limits.empty()) return;
  const std::string detail = MissingText(state.missing_limits);
  LogWarning("session ", state.info.id(), " runs without limits of its policy: ", detail);
  Emit(state, v1::SessionChange::LIMITS_MISSING, detail);
}

MissingLimits SessionManager::LimitsMissing(const std::string& session,
                                            const policy::ResourceLimits& limits) const {
  const auto it = sessions_.find(session);
  if (it == sessions_.end()) return HostMissing(limits);
  if (it->second->info.origin() != v1::Session::WATCH) return it->second->missing_limits;
  MissingLimits all;
  for (const std::string& key : GivenLimits(limits)) all[key] = "a watched tree stays where it is";
  return all;
}

void SessionManager::TellUsage(SessionState& state, const v1::Usage& usage) {
  *state.info.mutable_usage() = usage;
  Event event = OwnEvent(state, v1::USAGE);
  event.set_source(v1::CGROUP);
  *event.mutable_usage() = usage;
  deps_.events.OnEvent(event);
}

void SessionManager::EndResources(const StatePtr& state) {
  const bool counted = state->resources != nullptr;
  state->resources = nullptr;
  if (!state->cgroup.has_value()) return;
  const v1::Usage usage =
      counted ? deps_.resources.End(state->info.id()) : ReadUsage(CgroupFiles(state->cgroup->path()));
  if (state->populated_once) TellUsage(*state, usage);
}

}  // namespace agentmon
