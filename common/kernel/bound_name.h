// The name that a unix socket was bound to.
#pragma once

#include <sys/stat.h>

#include <string>

#include "absl/status/statusor.h"

namespace agentmon {

// The path that bind(2) was given for the socket whose file this is; empty: no socket in our network
// namespace has this file. Asks the kernel for all of them: some microseconds for each. Any thread; waits for
// nobody.
absl::StatusOr<std::string> BoundName(const struct stat& file);

}  // namespace agentmon
