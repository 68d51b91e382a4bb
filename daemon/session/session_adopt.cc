// Running trees: taken into a session (Adopt), or recorded where they are (Watch).
#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "daemon/session/adoptable.h"
#include "daemon/session/refusal.h"
#include "daemon/session/session_state.h"

namespace agentmon {

void SessionManager::Adopt(const Caller& caller, const v1::AdoptRequest& request, Done<v1::AdoptResponse> done) {
  absl::Status may = CheckMayStart(caller);
  if (may.ok()) may = CheckAdoptable(proc_, caller, request.pid());
  if (!may.ok()) return done(may);
  auto made = Make(caller.uid, v1::Session::ADOPT);
  if (!made.ok()) return done(made.status());
  const StatePtr state = *made;
  state->info.set_name(request.name().substr(0, 128));
  state->info.set_workspace(request.workspace());
  *state->info.mutable_labels() = request.labels();
  const auto argv = proc_.Argv(request.pid());
  if (argv.ok()) {
    for (const std::string& word : *argv) state->info.add_command(word);
  }
  state->info.mutable_first_process()->set_pid(request.pid());
  state->attaching = true;
  const auto not_launched = absl::UnavailableError("the processes were running before the session began");
  SetSource(state, v1::FANOTIFY, not_launched);
  SetSource(state, v1::NOTIFY, not_launched);
  Save(state);
  const bool posted = deps_.workers.TryPost([this, alive = alive_, state, caller, pid = request.pid(), done] {
    const auto move_one = [&](pid_t member) -> absl::Status {
      RETURN_IF_ERROR(CheckMovable(proc_, caller, member));
      return state->cgroup->AddProcess(member);
    };
    const absl::StatusOr<int> moved = deps_.observation.CollectTree(pid, move_one);
    deps_.core.Post([this, alive, state, moved, done, pid] {
      if (!*alive) return;
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
      Emit(*state, v1::SessionChange::STARTED, absl::StrCat("attached to pid ", pid));
      v1::AdoptResponse response;
      response.set_processes(static_cast<uint32_t>(*moved));
      *response.mutable_session() = Describe(*state);
      done(response);
      OnCgroupChange(state);   // all of it may have ended by now
    });
  });
  if (!posted) {
    End(state, "the daemon was too busy to move its processes");
    done(Refusal(absl::StatusCode::kResourceExhausted, "BUSY", "too many sessions start at once", "try again"));
  }
}

absl::StatusOr<v1::Session> SessionManager::StartWatch(const Caller& caller, pid_t pid) {
  RETURN_IF_ERROR(CheckMayStart(caller));
  RETURN_IF_ERROR(CheckAdoptable(proc_, caller, pid));
  ASSIGN_OR_RETURN(const uint64_t watch, deps_.observation.AddWatch(pid));
  auto made = Make(caller.uid, v1::Session::WATCH);
  if (!made.ok()) {
    deps_.observation.RemoveSession(watch);
    return made.status();
  }
  const StatePtr state = *made;
  state->cgroup_id = watch;
  by_cgroup_[watch] = state;
  state->info.set_state(v1::Session::RUNNING);
  state->info.mutable_first_process()->set_pid(pid);
  const auto not_moved = absl::UnavailableError("a watched tree stays where it is: only its processes are seen");
  for (const v1::Source source : {v1::NETWORK, v1::FANOTIFY, v1::NOTIFY}) SetSource(state, source, not_moved);
  Save(state);
  Emit(*state, v1::SessionChange::STARTED, absl::StrCat("watching pid ", pid));
  return state->info;
}

void SessionManager::EndWatch(const std::string& id) {
  const auto it = sessions_.find(id);
  if (it == sessions_.end()) return;
  const StatePtr state = it->second;
  End(state, "the watch ended");
}

}  // namespace agentmon
