#include "daemon/enforce/proof.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/refusal.h"
#include "common/base/status.h"
#include "common/kernel/landlock.h"
#include "daemon/enforce/shim_plan.h"

namespace agentmon {
namespace {

constexpr char kNotTried[] = "not tried yet";

v1::ControlState& Find(absl::string_view name, std::vector<v1::ControlState>& controls) {
  const auto found = std::find_if(controls.begin(), controls.end(),
                                  [&](const v1::ControlState& control) { return control.name() == name; });
  if (found != controls.end()) return *found;
  v1::ControlState& control = controls.emplace_back();
  control.set_name(std::string(name));
  control.set_why(kNotTried);
  return control;
}

absl::string_view MechanismOf(const v1::Canary& canary) {
  switch (canary.act()) {
    case v1::Canary::CALL:
      return "seccomp";
    case v1::Canary::SIGNAL:
      return canary.control() == kLsmSignalControl ? "bpf_lsm" : "landlock";
    case v1::Canary::OPEN_READ:
      return canary.control() == kLsmControl ? "bpf_lsm" : "fanotify";
    case v1::Canary::UNIX_CONNECT:
    case v1::Canary::UNIX_SEND:
      return canary.control() == kLsmUnixControl ? "bpf_lsm" : "notify, cgroup_bpf";
    case v1::Canary::CONNECT:
    case v1::Canary::SEND:
      return canary.control() == kNetworkCallsControl ? "seccomp" : "cgroup_bpf";
    case v1::Canary::ASK_PROXY:
      return "proxy";
    default:
      return "";
  }
}

// Empty = it holds.
std::string Flaw(const v1::Canary& canary, int error) {
  if (std::find(canary.errors().begin(), canary.errors().end(), error) != canary.errors().end()) return "";
  if (error == 0) return "the forbidden act succeeded";
  return absl::StrCat("the forbidden act failed by itself (", ErrnoName(error), "), which proves nothing");
}

}  // namespace

std::vector<v1::ControlState> ControlsOf(const v1::ShimPlan& plan, int landlock_abi) {
  std::vector<v1::ControlState> controls;
  for (const v1::Canary& canary : plan.canaries()) {
    Find(canary.control(), controls).set_mechanism(std::string(MechanismOf(canary)));
  }
  if (!plan.canaries().empty() && (!plan.landlock_scope() || landlock_abi < kLandlockScopeAbi)) {
    v1::ControlState& signal = Find("signal", controls);
    signal.set_mechanism("landlock");
    signal.set_why(landlock_abi < kLandlockScopeAbi
                       ? absl::StrCat("Landlock of this kernel has ABI ", landlock_abi, ", and scopes need ",
                                      kLandlockScopeAbi, " (Linux 6.12)")
                       : "the policy lets signals out of the session");
  }
  return controls;
}

absl::Status EnterProof(const v1::ShimPlan& plan, const v1::ProveRequest& tried, bool required,
                        std::vector<v1::ControlState>& controls) {
  if (tried.results_size() != plan.canaries_size())
    return absl::InvalidArgumentError("the results are not those of the session's canaries");
  for (v1::ControlState& control : controls) {
    const bool any = std::any_of(plan.canaries().begin(), plan.canaries().end(),
                                 [&](const v1::Canary& c) { return c.control() == control.name(); });
    if (!any) continue;
    control.set_active(true);
    control.clear_why();
  }
  absl::Status status;
  for (int i = 0; i < plan.canaries_size(); ++i) {
    const v1::Canary& canary = plan.canaries(i);
    const std::string flaw = Flaw(canary, tried.results(i).error());
    if (flaw.empty()) continue;
    v1::ControlState& control = Find(canary.control(), controls);
    control.set_active(false);
    control.set_why(flaw);
    if (required && status.ok()) {
      status = Refusal(
          absl::StatusCode::kFailedPrecondition, "CONTROL_FAILED",
          absl::StrCat("the control ", control.name(), " (", control.mechanism(), ") does not hold: ", flaw),
          "a policy with 'enforcement: best_effort' runs without it");
    }
  }
  return status;
}

}  // namespace agentmon
