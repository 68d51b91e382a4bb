// Stage: descriptors that lead past the session's policy do not reach the agent.
#pragma once

#include <vector>

#include "absl/status/status.h"

namespace agentmon {

// Marks close-on-exec what the agent would inherit of directories, O_PATH descriptors, devices (but the
// session's terminals, null, zero, full, random and urandom), sockets and kernel objects (but eventfd and its
// like). Pipes and regular files stay, and what `keep` names. 0, 1 and 2 stay whatever they are, since
// harnesses use sockets there; one that is a directory or O_PATH is an error. Marked rather than closed:
// other threads may use theirs until the exec.
absl::Status CloseWhatLeadsOut(const std::vector<int>& keep);

}  // namespace agentmon
