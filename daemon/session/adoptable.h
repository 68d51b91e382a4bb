// Which running processes may be taken into a session.
#pragma once

#include <sys/types.h>

#include "absl/status/status.h"
#include "common/kernel/proc_fs.h"
#include "daemon/session/caller.h"

namespace agentmon {

// OK when the caller may take the process: it is an ordinary process of this host, in no session, not
// ours, not the main process of a unit, and the caller has ptrace-attach rights on it (same uids and
// gids, no capabilities that the caller lacks, dumpable, no Yama level that reserves ptrace for root;
// ptrace(2)). Any thread.
absl::Status CheckAdoptable(const ProcFs& proc, const Caller& caller, pid_t pid);

// The part that also holds for its descendants: not ours, in no session, the caller's own.
absl::Status CheckMovable(const ProcFs& proc, const Caller& caller, pid_t pid);

}  // namespace agentmon
