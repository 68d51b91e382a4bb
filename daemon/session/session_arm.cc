// From the shim's plan to its proof: what happens between Attach and the agent's first instruction.
#include <set>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/base/refusal.h"
#include "common/base/status.h"
#include "common/kernel/landlock.h"
#include "daemon/enforce/proof.h"
#include "daemon/enforce/shim_plan.h"
#include "daemon/session/session_manager.h"
#include "daemon/session/session_state.h"

namespace agentmon {

namespace {

// agentmon itself, outside of the session: to such a parent the shim sends the signal of its self-test.
bool ClientWaits(const ProcFs& proc, pid_t client, pid_t shim) {
  const auto stat = proc.Stat(shim);
  const auto program = proc.Executable(client);
  return stat.ok() && stat->parent == client && program.ok() && absl::EndsWith(*program, "/agentmon");
}

}  // namespace

void SessionManager::PlanShim(const StatePtr& state, bool root) {
  const auto snapshot = deps_.policies.SnapshotOf(state->info.id());
  if (snapshot == nullptr) return;
  ShimPlanOptions options;
  const std::shared_ptr<Gate> gate = deps_.policies.GateOf(state->info.id());
  const bool armed = gate != nullptr && gate->armed();
  options.fanotify_backend = armed && ActiveSources(state->info).count(v1::FANOTIFY) != 0;
  absl::Status judged;
  const bool by_calls = IsHeldByListener(*state);
  if (armed && !by_calls) judged = deps_.observation.JudgeConnects(state->cgroup_id, snapshot);
  state->judges_connects = options.network_backend = armed && !by_calls && judged.ok();
  options.network_calls = armed && by_calls;
  state->tries_backstop = state->judges_connects && deps_.observation.BacksUpConnects(state->cgroup_id);
  options.broker_alone = armed && by_calls;
  options.root = root;
  options.keep_privileges = state->keeps_privileges;
  options.landlock_abi = LandlockAbi();
  options.lsm_backend = armed && ActiveSources(state->info).count(v1::LSM) != 0;
  options.lsm_sockets = options.lsm_backend && deps_.observation.StopsSockets(state->cgroup_id);
  const bool stops_unix = armed && !options.lsm_sockets && StopsUnixSockets(*snapshot);
  const absl::Status judges_unix = stops_unix ? CanJudgeUnix(*state) : absl::OkStatus();
  options.unix_backend = stops_unix && judges_unix.ok();
  options.unix_canaries = deps_.unix_canaries;
  options.lsm_signals = options.lsm_backend && deps_.observation.StopsSignals(state->cgroup_id) &&
                        ClientWaits(proc_, state->client_pid, state->shim_pid);
  options.canary_file = deps_.canary_file;
  if (!state->keeps_privileges) options.lsm_canary_file = deps_.lsm_canary_file;  // or ProveRules tries it
  state->plan = MakeShimPlan(*snapshot, options);
  // Without a cgroup there is no source of processes but this.
  state->plan.set_ask_exec((armed && !state->keeps_privileges) || by_calls);
  state->plan.set_ask_network(by_calls);
  state->plan.set_give_datagram_socket(state->tries_backstop);
  state->proof_required = RequiresEnforcement(*snapshot);
  state->info.clear_controls();
  if (IsHeldByListener(*state)) PlanProxy(state, *snapshot);
  for (v1::ControlState& control : ControlsOf(state->plan, options.landlock_abi)) {
    *state->info.add_controls() = std::move(control);
  }
  if (!judged.ok()) {
    v1::ControlState* network = state->info.add_controls();
    network->set_name("network");
    network->set_mechanism("cgroup_bpf");
    network->set_why(std::string(judged.message()));
  }
  if (!judges_unix.ok()) {
    v1::ControlState* sockets = state->info.add_controls();
    sockets->set_name(kUnixControl);
    sockets->set_mechanism("notify, cgroup_bpf");
    sockets->set_why(std::string(judges_unix.message()));
  }
  if (state->tries_backstop) {
    v1::ControlState* backstop = state->info.add_controls();
    backstop->set_name(kBackstopControl);
    backstop->set_mechanism("nft");
    backstop->set_why("not tried yet");
  }
  TellPrivileges(state, *snapshot);
  SetPlannedControls(state);
}

// Until they were tried, what is planned counts.
void SessionManager::SetPlannedControls(const StatePtr& state) {
  std::set<std::string> controls = ActiveControls(state->info);
  for (const v1::Canary& canary : state->plan.canaries()) controls.insert(canary.control());
  deps_.policies.SetControls(state->info.id(), std::move(controls));
}

absl::Status SessionManager::CanJudgeUnix(const SessionState& state) const {
  RETURN_IF_ERROR(deps_.observation.CanJudgeUnix());
  if (!state.judges_connects) return absl::UnavailableError("the session's network programs are not kept");
  const std::set<v1::Source> sources = ActiveSources(state.info);
  if (sources.count(v1::NOTIFY) == 0) return absl::UnavailableError("nothing is asked before a call");
  if (sources.count(v1::FANOTIFY) == 0)
    return absl::UnavailableError("the session has no mounts of its own, in which sockets could be held");
  return absl::OkStatus();
}

std::set<std::string> ActiveControls(const v1::Session& session) {
  std::set<std::string> active;
  for (const v1::ControlState& control : session.controls()) {
    if (control.active()) active.insert(control.name());
  }
  return active;
}

absl::StatusOr<SessionManager::StatePtr> SessionManager::FindAttached(const Caller& caller,
                                                                      const std::string& token) const {
  const auto it = by_token_.find(token);
  if (it != by_token_.end() && it->second->shim_pid == caller.pid) return it->second;
  return Refusal(absl::StatusCode::kPermissionDenied, "BAD_TOKEN",
                 "this token was not attached by this process");
}

void SessionManager::ForgetToken(const StatePtr& state) {
  by_token_.erase(state->token);
  state->token.clear();
}

absl::StatusOr<v1::ArmResponse> SessionManager::Arm(const Caller& caller, const v1::ArmRequest& request) {
  ASSIGN_OR_RETURN(const StatePtr state, FindAttached(caller, request.token()));
  if (state->armed) {
    return Refusal(absl::StatusCode::kFailedPrecondition, "ARMED", "this session is armed already");
  }
  absl::Status armed;
  if (request.notify_fd() >= 0) {
    auto listener = caller.pidfd->TakeFd(request.notify_fd());
    if (!listener.ok()) return WithContext(listener.status(), "take over the notify descriptor");
    armed = deps_.observation.AddListener(state->cgroup_id, std::move(*listener),
                                          deps_.policies.GateOf(state->info.id()));
    // Where that fails, the tries go through.
    if (armed.ok() && state->plan.ask_unix()) {
      if (const absl::Status judged = deps_.observation.JudgeUnix(state->cgroup_id); !judged.ok())
        LogWarning("session ", state->info.id(), ": ", judged.message());
    }
  } else {
    armed = absl::UnavailableError(request.notify_error().substr(0, 512));
  }
  if (IsHeldByListener(*state)) {
    if (!armed.ok()) {
      End(state, "it has no listener that would hold it");
      return WithContext(armed, "hold the session by its seccomp listener");
    }
    ForgetClient(state);
  }
  state->armed = true;
  const bool prove = !state->plan.canaries().empty();
  if (!prove) ForgetToken(state);
  // Where the source is missing on this host, that was told at Attach.
  if (SetSource(state, v1::NOTIFY, armed) && !armed.ok()) {
    Emit(*state, v1::SessionChange::SOURCE_INACTIVE, absl::StrCat("notify: ", armed.message()));
  }
  Save(state);
  RETURN_IF_ERROR(
      CheckEnforceable(deps_.policies.FindUnenforceable(state->info.id(), ActiveSources(state->info))));
  // Before the shim hears that it may try.
  deps_.policies.GateOf(state->info.id())->SetProving(prove);
  v1::ArmResponse response;
  response.set_prove(prove);
  return response;
}

void SessionManager::Prove(const Caller& caller, const v1::ProveRequest& request,
                           Done<v1::ProveResponse> done) {
  const auto found = FindAttached(caller, request.token());
  if (!found.ok()) return done(found.status());
  const StatePtr& state = *found;
  if (!state->armed) {
    return done(Refusal(absl::StatusCode::kFailedPrecondition, "NOT_ARMED", "this session is not armed yet"));
  }
  ForgetToken(state);
  if (const absl::Status proven = EnterTries(state, request); !proven.ok()) return done(proven);
  if (!state->tries_backstop) return done(v1::ProveResponse());
  auto socket = caller.pidfd->TakeFd(request.datagram_socket());
  if (!socket.ok()) {
    EnterBackstop(state, WithContext(socket.status(), "take over a socket to try it with"));
    return done(v1::ProveResponse());
  }
  deps_.observation.TryBackstop(state->cgroup_id, *std::move(socket),
                                [this, alive = alive_, state, done](const absl::Status& holds) {
                                  if (!*alive) return;
                                  EnterBackstop(state, holds);
                                  done(v1::ProveResponse());
                                });
}

// The second line is best effort: the session runs without it, and says so.
void SessionManager::EnterBackstop(const StatePtr& state, const absl::Status& holds) {
  for (v1::ControlState& control : *state->info.mutable_controls()) {
    if (control.name() != kBackstopControl) continue;
    control.set_active(holds.ok());
    control.set_why(std::string(holds.message()));
  }
  deps_.policies.SetControls(state->info.id(), ActiveControls(state->info));
  Save(state);
}

absl::Status SessionManager::EnterTries(const StatePtr& state, const v1::ProveRequest& request) {
  // What the tries were stopped by is no doing of the agent's.
  deps_.observation.TakeIn();
  deps_.observation.TakeInStopped();
  deps_.policies.GateOf(state->info.id())->SetProving(false);
  std::vector<v1::ControlState> controls(state->info.controls().begin(), state->info.controls().end());
  const absl::Status proven = EnterProof(state->plan, request, state->proof_required, controls);
  *state->info.mutable_controls() = {controls.begin(), controls.end()};
  deps_.policies.SetControls(state->info.id(), ActiveControls(state->info));
  state->plan.Clear();
  Save(state);
  return proven;
}

}  // namespace agentmon
