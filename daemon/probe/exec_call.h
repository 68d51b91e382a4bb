// execve or execveat, read while its caller waits.
#pragma once

#include <linux/seccomp.h>

#include <string>
#include <vector>

#include "common/kernel/mediated_calls.h"
#include "daemon/enforce/caller_lookup.h"

namespace agentmon {

struct ExecCall {
  CallerName name;
  bool follow = true;
  std::vector<std::string> argv;
  bool argv_cut = false;  // more than what is looked at
};

// False when the caller's memory cannot be read: then the kernel cannot read it either.
bool CaptureExec(const MediatedCall& call, const seccomp_notif& request, ExecCall* out);

}  // namespace agentmon
