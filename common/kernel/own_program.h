// Processes of this same program that outlive the one that starts them.
#pragma once

#include <initializer_list>

#include "absl/status/status.h"

namespace agentmon {

// Executed, not only forked: it shares no memory with its starter, which may have threads. No child of the
// starter. argv: name, option, argument. The descriptors are 3, 4, ... of it; at most 8.
absl::Status StartOwnProgram(const char* name, const char* option, const char* argument,
                             std::initializer_list<int> descriptors);

// In it, first of all: a session of its own, no signal but SIGKILL ends it, it is the last that memory runs
// out for, and it has no descriptor of its starter but those `descriptors`.
void BecomeOwnProgram(const char* name, int descriptors);

}  // namespace agentmon
