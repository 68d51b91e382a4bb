// Everything that the shim does to itself, in order.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "agentmon/v1/sessions.pb.h"
#include "common/base/unique_fd.h"
#include "shim/canary.h"

namespace agentmon {

struct Restricted {
  std::vector<std::string> environment;  // of the agent
  UniqueFd listener;                     // of the filter, close-on-exec
  std::string no_listener;               // why there is none
  std::optional<Outsider> outsider;      // when a canary needs one
};

// Of the calling thread, which is to become the agent, and for ever. An error: the agent must not run.
// Afterwards a mediated call would wait until the listener is served.
absl::StatusOr<Restricted> RestrictSelf(const v1::AttachResponse& response, const std::vector<int>& keep_fds);

}  // namespace agentmon
