// Stage: sends file-changing system calls to the daemon. Observes only: every call goes on.
#pragma once

#include "absl/status/statusor.h"
#include "common/base/unique_fd.h"

namespace agentmon {

// Filters the calling thread, and what it becomes and starts, for ever; sets no_new_privs. Answers the
// listener (close-on-exec). After this the thread must make no mediated call until the listener is
// served: it would wait. FailedPrecondition where a filter with a listener is there already.
absl::StatusOr<UniqueFd> InstallNotifyFilter();

}  // namespace agentmon
