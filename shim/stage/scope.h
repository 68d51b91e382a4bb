// Stage: a Landlock domain that only scopes: no signal, ptrace or abstract unix socket reaches out of the
// session. It handles no file right, which would make every mount(2) fail, also those of sandboxes inside.
#pragma once

#include "absl/status/status.h"

namespace agentmon {

// FailedPrecondition where this kernel's Landlock (`abi`, of LandlockAbi) cannot scope. After no_new_privs.
absl::Status EnterScope(int abi);

}  // namespace agentmon
