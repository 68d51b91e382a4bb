// Where a session's processes are: a directory of the instance's own, or a scope of systemd.
#include <unistd.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "daemon/session/session_state.h"

namespace agentmon {
namespace {

constexpr char kOwnSlice[] = "agentmon-sessions.slice";

// The user's slice that a cgroup lies in, so that its limits hold as well; ours where it lies in none.
std::string SliceOf(absl::string_view cgroup) {
  const std::vector<absl::string_view> names = absl::StrSplit(cgroup, '/');
  const bool of_user = names.size() > 2 && names[1] == "user.slice" && absl::StartsWith(names[2], "user-");
  return of_user ? std::string(names[2]) : kOwnSlice;
}

}  // namespace

absl::Status SessionManager::MakeCgroup(const StatePtr& state) {
  ASSIGN_OR_RETURN(Cgroup cgroup, deps_.cgroups.Make(state->info.id()));
  const absl::Status used = UseCgroup(state, std::move(cgroup));
  if (!used.ok()) state->cgroup->RemoveTree().IgnoreError();
  return WithContext(used, "start a session");
}

absl::Status SessionManager::UseCgroup(const StatePtr& state, Cgroup cgroup) {
  const std::string& id = state->info.id();
  state->cgroup = std::move(cgroup);
  state->cgroup_id = state->cgroup->id();
  state->info.set_cgroup(deps_.cgroups.RelativePath(id));
  RETURN_IF_ERROR(
      deps_.observation.AddSession(state->cgroup_id, deps_.cgroups.IsScope(id) ? state->cgroup->fd() : -1));
  const absl::Status watched = deps_.cgroups.Watch(id, [this, state] { OnCgroupChange(state); });
  if (!watched.ok()) deps_.observation.RemoveSession(state->cgroup_id);
  RETURN_IF_ERROR(watched);
  by_cgroup_[state->cgroup_id] = state;
  return absl::OkStatus();
}

void SessionManager::BeginScope(const StatePtr& state, pid_t pid, std::function<void(absl::Status)> done) {
  const v1::Session& info = state->info;
  ScopeRequest request;
  request.unit = ScopeName(info.id());
  request.slice = SliceOf(proc_.CgroupPath(pid).value_or(""));
  request.description =
      absl::StrCat("agentmon session ", info.id(), info.name().empty() ? "" : ", ", info.name());
  request.pid = pid;
  request.limits = deps_.policies.SnapshotOf(info.id())->limits();
  request.disks = deps_.host_limits.Disks();
  deps_.scopes->Start(request, [this, alive = alive_, state, pid, done](const absl::Status& started) {
    if (!*alive) return;
    if (state->ended) return done(absl::AbortedError("the session was stopped before it began"));
    absl::Status placed = started;
    if (started.ok()) {
      placed = UseScope(state, pid);
    } else if (absl::IsUnavailable(started)) {
      LogWarning("session ", state->info.id(), " is a plain cgroup: ", started.message());
      placed = MakeCgroup(state);
    }
    if (placed.ok()) placed = BeginLimits(state);
    done(placed);
  });
}

absl::Status SessionManager::UseScope(const StatePtr& state, pid_t pid) {
  const std::string& id = state->info.id();
  ASSIGN_OR_RETURN(const std::string path, proc_.CgroupPath(pid));
  if (SessionOfScope(path) != id)
    return absl::InternalError(
        absl::StrCat("systemd put pid ", pid, " into ", path, " and not into ", ScopeName(id)));
  deps_.cgroups.UseScope(id, path);
  state->info.set_unit(ScopeName(id));
  ASSIGN_OR_RETURN(Cgroup cgroup, deps_.cgroups.Open(id));
  return UseCgroup(state, std::move(cgroup));
}

// A migration soon after another one takes 14 us in place of 10 to 15 ms (the kernel's cgroup lock stays
// in writer mode for a while), so the lock is taken now, while the caller starts its shim.
void SessionManager::LockCgroupsEarly() {
  const bool posted [[maybe_unused]] = deps_.workers.TryPost([mount = deps_.cgroups.mount()] {
    const auto own = Cgroup::OpenOwn(mount);
    if (own.ok()) own->AddProcess(getpid()).IgnoreError();
  });
}

bool SessionManager::MoveInto(const StatePtr& state, const Caller& caller,
                              std::function<void(absl::Status)> done) {
  return deps_.workers.TryPost([this, state, caller, done = std::move(done)] {
    absl::Status moved = state->cgroup->AddProcess(caller.pid);
    // The process is held by descriptor: alive after the write means that the number still meant it.
    if (moved.ok() && !caller.pidfd->Alive()) moved = absl::NotFoundError("the process ended meanwhile");
    deps_.core.Post([done, moved] { done(moved); });
  });
}

}  // namespace agentmon
