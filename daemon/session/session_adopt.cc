// Running trees: taken into a session (Adopt), or recorded where they are (Watch).
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/base/refusal.h"
#include "common/base/status.h"
#include "common/kernel/pid_fd.h"
#include "daemon/enforce/session_try.h"
#include "daemon/enforce/shim_plan.h"
#include "daemon/policy/enforcement.h"
#include "daemon/session/adoptable.h"
#include "daemon/session/session_state.h"

namespace agentmon {
namespace {

// Moves processes into a cgroup and remembers where they were, to put them back when it fails half way.
// Worker thread.
class TreeMove {
 public:
  // first_from: where the first process was, when it is in the target already.
  TreeMove(const ProcFs& proc, const Caller& caller, const Cgroup& target, std::string cgroup_mount,
           std::string first_from)
      : proc_(proc),
        caller_(caller),
        target_(target),
        cgroup_mount_(std::move(cgroup_mount)),
        target_path_(target.path().substr(cgroup_mount_.size())),
        first_from_(std::move(first_from)) {}

  // NotFound leaves the process out of the session: it is gone, or not the caller's to move.
  absl::Status MoveOne(pid_t pid) {
    auto pidfd = PidFd::Open(pid);
    if (!pidfd.ok()) return pidfd.status();
    const auto before = proc_.CgroupPath(pid);
    if (!before.ok()) return absl::NotFoundError("gone");
    if (*before == target_path_) {  // systemd has put the first one there
      moved_.emplace_back(std::move(*pidfd), first_from_);
      return absl::OkStatus();
    }
    if (const absl::Status may = CheckMovable(proc_, caller_, pid); !may.ok()) {
      if (pidfd->Alive()) ++left_out_;
      return absl::NotFoundError(may.message());
    }
    RETURN_IF_ERROR(target_.AddProcess(pid));
    moved_.emplace_back(std::move(*pidfd), *before);
    return absl::OkStatus();
  }

  void PutBack() {
    for (const auto& [pidfd, path] : moved_) {
      const auto home = Cgroup::Open(cgroup_mount_ + path);
      if (home.ok() && pidfd.Alive()) home->AddProcess(pidfd.pid()).IgnoreError();
    }
  }
  int left_out() const { return left_out_; }

 private:
  const ProcFs& proc_;
  const Caller& caller_;
  const Cgroup& target_;
  const std::string cgroup_mount_, target_path_, first_from_;
  std::vector<std::pair<PidFd, std::string>> moved_;
  int left_out_ = 0;
};

absl::Status NeedsLaunch() {
  return Refusal(absl::StatusCode::kFailedPrecondition, "NO_LISTENER",
                 "a daemon that is no root's cannot take in what already runs: only what it sees from the "
                 "start has a seccomp listener",
                 "start the program with 'agentmon run'");
}

absl::Status Busy() {
  return Refusal(absl::StatusCode::kResourceExhausted, "BUSY", "too many sessions start at once",
                 "try again");
}

}  // namespace

void SessionManager::Adopt(const Caller& caller, const v1::AdoptRequest& request,
                           Done<v1::AdoptResponse> done) {
  absl::Status may = CheckMayStart(caller);
  if (may.ok() && deps_.listeners != nullptr) may = NeedsLaunch();
  if (may.ok()) may = CheckStartFields(request.name(), request.workspace(), request.labels());
  if (may.ok()) may = CheckAdoptable(proc_, caller, request.pid());
  if (!may.ok()) return done(may);
  const auto owner = proc_.Uid(request.pid());
  const std::string workspace =
      request.workspace().empty() ? proc_.Cwd(request.pid()).value_or("") : request.workspace();
  deps_.policies.Prepare(
      owner.ok() ? *owner : caller.uid, workspace, request.policy(),
      [this, alive = alive_, caller, request, done](absl::StatusOr<Policies::PreparedPtr> policy) {
        if (!*alive) return;
        if (!policy.ok()) return done(policy.status());
        AdoptPrepared(caller, request, *policy, done);
      });
}

void SessionManager::AdoptPrepared(const Caller& caller, const v1::AdoptRequest& request,
                                   const Policies::PreparedPtr& policy, const Done<v1::AdoptResponse>& done) {
  // Again: another process may have this number by now.
  absl::Status may = CheckMayStart(caller);
  if (may.ok()) may = CheckAdoptable(proc_, caller, request.pid());
  const policy::Snapshot& snapshot = *policy->compiled.snapshot;
  if (may.ok()) may = CheckLimits(snapshot, deps_.host_limits.Missing(snapshot.limits()));
  if (may.ok()) {
    may = CheckEnforceable(
        FindUnenforceable(snapshot, deps_.policies.Enforcement(snapshot, {v1::PROCESS, v1::NETWORK})));
  }
  if (!may.ok()) return done(may);
  auto made = Make(policy->request.owner.uid, v1::Session::ADOPT);
  if (!made.ok()) return done(made.status());
  const StatePtr state = *made;
  agentmon::Describe(request.name(), request.workspace(), request.labels(), state->info);
  if (const auto argv = proc_.Argv(request.pid()); argv.ok()) SetCommand(state->info, *argv);
  state->info.mutable_first_process()->set_pid(request.pid());
  BeginPolicy(state, policy);
  deps_.policies.SetFirstProcess(state->info.id(), request.pid());
  state->attaching = true;
  const auto not_launched = absl::UnavailableError("the processes were running before the session began");
  SetSource(state, v1::FANOTIFY, not_launched);
  SetSource(state, v1::NOTIFY, not_launched);
  Save(state);
  const auto collect = [this, alive = alive_, state, caller, pid = request.pid(),
                        before = proc_.CgroupPath(request.pid()).value_or("/"), done](absl::Status placed) {
    if (!*alive) return;
    if (placed.ok() && !state->ended) return CollectAdopted(state, caller, pid, before, done);
    End(state, "it could not be made");
    done(placed.ok() ? absl::AbortedError("the session was stopped before it began") : placed);
  };
  if (state->cgroup.has_value())
    collect(BeginLimits(state));
  else
    BeginScope(state, request.pid(), collect);
}

void SessionManager::CollectAdopted(const StatePtr& state, const Caller& caller, pid_t pid,
                                    const std::string& before, const Done<v1::AdoptResponse>& done) {
  AddRules(state, pid);  // before its processes come
  ProveRules(state,
             [this, state, caller, pid, before, done] { MoveAdopted(state, caller, pid, before, done); });
}

void SessionManager::MoveAdopted(const StatePtr& state, const Caller& caller, pid_t pid,
                                 const std::string& before, const Done<v1::AdoptResponse>& done) {
  if (state->ended) return done(absl::AbortedError("the session was stopped before it began"));
  const bool posted = deps_.workers.TryPost([this, alive = alive_, state, caller, pid, before, done] {
    TreeMove move(proc_, caller, *state->cgroup, deps_.cgroups.mount(), before);
    absl::StatusOr<int> moved =
        deps_.observation.CollectTree(pid, [&](pid_t member) { return move.MoveOne(member); });
    if (!moved.ok()) move.PutBack();
    deps_.core.Post([this, alive, state, pid, moved, left_out = move.left_out(), done] {
      if (*alive) FinishAdopt(state, pid, moved, left_out, done);
    });
  });
  if (!posted) {
    End(state, "the daemon was too busy to move its processes");
    done(Busy());
  }
}

// Nobody of the session's own tries anything there: what the kernel's rules are worth is found out for it.
void SessionManager::ProveRules(const StatePtr& state, std::function<void()> then) {
  const std::shared_ptr<Gate> gate = deps_.policies.GateOf(state->info.id());
  if (gate == nullptr || !gate->armed() || ActiveSources(state->info).count(v1::LSM) == 0) return then();
  if (deps_.lsm_canary_file.empty()) return then();
  gate->SetProving(true);
  const bool posted = deps_.workers.TryPost([this, alive = alive_, state, then] {
    const absl::StatusOr<SessionTries> tries =
        TryInSession(*state->cgroup, deps_.lsm_canary_file, deps_.canary_file);
    deps_.core.Post([this, alive, state, then, tries] {
      if (!*alive) return;
      if (!state->ended) EnterRuleTries(state, tries);
      then();
    });
  });
  if (posted) return;
  EnterRuleTries(state, absl::ResourceExhaustedError("the daemon was too busy to try it"));
  then();
}

void SessionManager::EnterRuleTries(const StatePtr& state, const absl::StatusOr<SessionTries>& tries) {
  deps_.observation.TakeInStopped();
  deps_.policies.GateOf(state->info.id())->SetProving(false);
  const auto enter = [&](const char* name, int error) {
    v1::ControlState* control = state->info.add_controls();
    control->set_name(name);
    control->set_mechanism("bpf_lsm");
    control->set_active(tries.ok() && error == EACCES && tries->spare == 0);
    if (!control->active())
      control->set_why(tries.ok() ? "the forbidden act did not fail as it should"
                                  : std::string(tries.status().message()));
  };
  enter(kLsmControl, tries.ok() ? tries->read : 0);
  enter(kLsmChangeControl, tries.ok() ? tries->change : 0);
  SetPlannedControls(state);
}

void SessionManager::FinishAdopt(const StatePtr& state, pid_t pid, absl::StatusOr<int> moved, int left_out,
                                 const Done<v1::AdoptResponse>& done) {
  state->attaching = false;
  if (!moved.ok() || *moved == 0) {
    End(state, "its processes could not be moved into it");
    return done(moved.ok() ? Refusal(absl::StatusCode::kNotFound, "NO_SUCH_PROCESS",
                                     absl::StrCat("process ", pid, " ended or could not be moved"))
                           : moved.status());
  }
  state->populated_once = true;
  state->info.set_state(v1::Session::RUNNING);
  Save(state);
  deps_.observation.SessionMembersChanged();
  Emit(*state, v1::SessionChange::STARTED,
       absl::StrCat("attached to pid ", pid,
                    left_out > 0 ? absl::StrCat(", without ", left_out, " processes of other users") : ""));
  TellGap(*state);
  FollowLossAction(state);
  v1::AdoptResponse response;
  response.set_processes(static_cast<uint32_t>(*moved));
  *response.mutable_session() = Describe(*state);
  done(response);
  OnCgroupChange(state);  // all of it may have ended by now
}

void SessionManager::StartWatch(const Caller& caller, pid_t pid, Done<v1::Session> done) {
  absl::Status may = CheckMayStart(caller);
  if (may.ok() && deps_.listeners != nullptr) may = NeedsLaunch();
  if (may.ok()) may = CheckAdoptable(proc_, caller, pid);
  if (!may.ok()) return done(may);
  deps_.policies.Prepare(
      caller.uid, proc_.Cwd(pid).value_or(""), v1::PolicyChoice(),
      [this, alive = alive_, caller, pid, done](absl::StatusOr<Policies::PreparedPtr> policy) {
        if (!*alive) return;
        if (!policy.ok()) return done(policy.status());
        const bool posted = deps_.workers.TryPost([this, alive, caller, pid, policy = *policy, done] {
          const absl::StatusOr<uint64_t> watch = deps_.observation.AddWatch(pid);
          deps_.core.Post([this, alive, caller, pid, policy, watch, done] {
            if (!*alive) return;
            if (!watch.ok()) return done(watch.status());
            FinishWatch(caller, pid, *watch, policy, done);
          });
        });
        if (!posted) done(Busy());
      });
}

void SessionManager::FinishWatch(const Caller& caller, pid_t pid, uint64_t watch,
                                 const Policies::PreparedPtr& policy, const Done<v1::Session>& done) {
  const auto made = Make(caller.uid, v1::Session::WATCH);
  if (!made.ok()) {
    deps_.observation.RemoveSession(watch);
    return done(made.status());
  }
  const StatePtr& state = *made;
  state->cgroup_id = watch;
  by_cgroup_[watch] = state;
  BeginPolicy(state, policy);
  deps_.policies.SetFirstProcess(state->info.id(), pid);
  state->info.set_state(v1::Session::RUNNING);
  state->info.mutable_first_process()->set_pid(pid);
  if (const auto argv = proc_.Argv(pid); argv.ok()) SetCommand(state->info, *argv);
  const auto not_moved =
      absl::UnavailableError("a watched tree stays where it is: only its processes are seen");
  for (const v1::Source source : {v1::NETWORK, v1::FANOTIFY, v1::NOTIFY, v1::LSM})
    SetSource(state, source, not_moved);
  Save(state);
  deps_.observation.SessionMembersChanged();
  Emit(*state, v1::SessionChange::STARTED, absl::StrCat("watching pid ", pid));
  done(state->info);
}

void SessionManager::EndWatch(const std::string& id) {
  const auto it = sessions_.find(id);
  if (it == sessions_.end()) return;
  const StatePtr state = it->second;
  End(state, "the watch ended");
}

}  // namespace agentmon
