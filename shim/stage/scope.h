// Stage: a Landlock domain: nothing in the session reaches the insides of processes out of it (ptrace,
// memory, and /proc/PID/root, which leads past marks on mounts). From ABI 6 on it only scopes, and keeps
// signals and abstract unix sockets inside as well; a domain of an older ABI handles a file right, which
// makes every mount(2) fail.
#pragma once

#include "absl/status/status.h"

namespace agentmon {

// FailedPrecondition where this kernel's Landlock (`abi`, of LandlockAbi) cannot. After no_new_privs.
// abstract_sockets: keep them inside; else the policy judges them one by one.
absl::Status EnterScope(int abi, bool abstract_sockets = true);

}  // namespace agentmon
