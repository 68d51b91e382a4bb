// Stage: sends file-changing system calls to the daemon, and refuses families of others. The last stage:
// it covers nothing that the shim still has to do, and the calls of other stages need no place in its tables.
#pragma once

#include "absl/status/statusor.h"
#include "common/base/unique_fd.h"
#include "common/kernel/refused_calls.h"
#include "shim/stage/filter_program.h"

namespace agentmon {

// Filters the calling thread, and what it becomes and starts, for ever; sets no_new_privs. Answers the
// listener (close-on-exec). After this the thread must make no mediated call until the listener is
// served: it would wait. FailedPrecondition where a filter with a listener is there already.
absl::StatusOr<UniqueFd> InstallNotifyFilter(const FilterPlan& plan = {});

// The same without a listener: refuses only. Where there is one already, or the kernel has none for us.
absl::Status InstallRefusingFilter(const CallFamilies& refuse);

}  // namespace agentmon
