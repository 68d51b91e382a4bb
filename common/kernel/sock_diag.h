// The kernel's list of sockets: sock_diag(7).
#pragma once

#include "absl/status/statusor.h"
#include "common/base/unique_fd.h"

namespace agentmon {

// A netlink socket for it, which waits for no answer longer than 0.2 s: the kernel answers within the call.
absl::StatusOr<UniqueFd> OpenSockDiag();

}  // namespace agentmon
