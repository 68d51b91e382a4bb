// Stage: set-user-id bits and file capabilities give nothing any more.
#pragma once

#include "absl/status/status.h"

namespace agentmon {

// For ever, for this thread and what it becomes and starts. Before Landlock and seccomp, which ask for it. It
// is also what makes the bounding set moot where that cannot be emptied: no exec adds to the permitted set.
absl::Status SetNoNewPrivileges();

}  // namespace agentmon
