// What the canaries of a session say about its controls.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "agentmon/v1/sessions.pb.h"

namespace agentmon {

// Of what stands behind the network rules; it is not among the canaries.
inline constexpr char kBackstopControl[] = "network_backstop";

// The controls of a plan as they are before anything was tried: inactive, with the reason. Those that this
// kernel cannot have are among them.
std::vector<v1::ControlState> ControlsOf(const v1::ShimPlan& plan, int landlock_abi);

// Enters into `controls` what the shim's tries showed, one result for each canary of the plan. A control is
// active when all of its canaries failed as they should. The error, of what the policy requires, is for the
// user; InvalidArgument when the results are not those of the plan.
absl::Status EnterProof(const v1::ShimPlan& plan, const v1::ProveRequest& tried, bool required,
                        std::vector<v1::ControlState>& controls);

}  // namespace agentmon
