// Tries what a session must not do, from within its cgroup, where no shim of the session's does it.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "common/kernel/cgroup.h"

namespace agentmon {

// errno of each act, 0 = it went through.
struct SessionTries {
  int read = 0;    // of the file that no session may open
  int change = 0;  // of its mode, to what it is
  int spare = 0;   // a read of one that is let through
};

// Blocks for the milliseconds that a process of our own takes, one second at most. It is in the cgroup while
// it tries, and gone from there when this returns.
absl::StatusOr<SessionTries> TryInSession(const Cgroup& cgroup, const std::string& forbidden,
                                          const std::string& spare);

}  // namespace agentmon
