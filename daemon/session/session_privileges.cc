// Sessions whose set-uid programs work, because the floor says so (`allow_privileges`). No filter, domain or
// mark holds one: a program that gains privileges could not be given them by an ordinary user, or could leave
// them.
#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/base/refusal.h"
#include "daemon/enforce/shim_plan.h"
#include "daemon/session/session_state.h"

namespace agentmon {
namespace {

constexpr char kControl[] = "no_new_privs";
constexpr char kCost[] =
    "allow_privileges: set-uid programs have their owner's rights, no system call is refused, nobody is "
    "asked before "
    "a call, arguments of commands are not judged, changes of files are recorded only where they are stopped";

}  // namespace

// Before the client hears how its shim is to be started.
void SessionManager::KeepPrivileges(const StatePtr& state, const policy::Snapshot& snapshot) {
  if (!snapshot.allow_privileges() || ActiveSources(state->info).count(v1::LSM) == 0) return;
  state->keeps_privileges = true;
  const auto nobody_is_asked = absl::UnavailableError("the floor lets the session gain privileges");
  SetSource(state, v1::FANOTIFY, nobody_is_asked);
  SetSource(state, v1::NOTIFY, nobody_is_asked);
}

// Whatever the policy leaves to best effort: with neither these rules nor no_new_privs nothing would be in
// the way.
void SessionManager::CheckPrivileges(const StatePtr& state,
                                     const std::function<void(const absl::Status&)>& done) {
  if (!state->keeps_privileges) return done(absl::OkStatus());
  const auto snapshot = deps_.policies.SnapshotOf(state->info.id());
  if (snapshot == nullptr || !snapshot->allow_privileges()) {
    return done(Refusal(absl::StatusCode::kAborted, "POLICY_CHANGED",
                        "the floor has taken allow_privileges away while the session began",
                        "start it again"));
  }
  const std::shared_ptr<Gate> gate = deps_.policies.GateOf(state->info.id());
  if (gate == nullptr || !gate->armed()) return done(absl::OkStatus());
  ProveRules(state, [state, done] {
    const std::set<std::string> held = ActiveControls(state->info);
    if (held.count(kLsmControl) != 0 && held.count(kLsmChangeControl) != 0) return done(absl::OkStatus());
    std::string why = "they do not run in this session";
    for (const v1::ControlState& control : state->info.controls()) {
      const bool tried = control.name() == kLsmControl || control.name() == kLsmChangeControl;
      if (tried && !control.active()) why = control.why();
    }
    done(Refusal(absl::StatusCode::kFailedPrecondition, "CONTROL_FAILED",
                 absl::StrCat("the floor lets sessions gain privileges, and the kernel's own rules on files, "
                              "which alone would hold this one, do not: ",
                              why),
                 "'agentmon status' says what is wrong with the source lsm; without allow_privileges in the "
                 "floor the session is confined in other ways"));
  });
}

void SessionManager::TellPrivileges(const StatePtr& state, const policy::Snapshot& snapshot) {
  if (!snapshot.allow_privileges()) return;
  v1::ControlState* control = state->info.add_controls();
  control->set_name(kControl);
  control->set_mechanism("shim");
  control->set_active(!state->keeps_privileges);
  if (state->keeps_privileges) {
    control->set_why(kCost);
    LogWarning("session ", state->info.id(), ": ", kCost);
    Emit(*state, v1::SessionChange::NOT_ENFORCED, kCost);
    return;
  }
  const std::string why =
      "allow_privileges of the floor has no effect: it needs BPF among the security modules (source lsm)";
  LogWarning("session ", state->info.id(), ": ", why);
  Emit(*state, v1::SessionChange::NOT_ENFORCED, why);
}

}  // namespace agentmon
