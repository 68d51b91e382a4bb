#include "shim/stage/notify_filter.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "common/base/status.h"
#include "common/kernel/seccomp_listener.h"
#include "shim/stage/no_new_privileges.h"

namespace agentmon {
namespace {

// Loaded by hand: libseccomp 2.5.4 does not know WAIT_KILLABLE_RECV, without which a caught signal ends a
// waiting call with EINTR. SPEC_ALLOW: the filter keeps no secret, and wants no mitigation.
absl::StatusOr<int> Install(const FilterPlan& plan) {
  std::vector<sock_filter> program = BuildFilter(plan);
  const sock_fprog prog{static_cast<unsigned short>(program.size()), program.data()};
  RETURN_IF_ERROR(SetNoNewPrivileges());
  const unsigned long listener = SECCOMP_FILTER_FLAG_NEW_LISTENER | kSeccompWaitKillable;
  const unsigned long flags = SECCOMP_FILTER_FLAG_SPEC_ALLOW | (plan.listener ? listener : 0);
  const long result = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &prog);
  if (result >= 0) return static_cast<int>(result);
  if (plan.listener && errno == EBUSY)
    return absl::FailedPreconditionError("a seccomp filter with a listener is installed already (EBUSY)");
  if (plan.listener && errno == EINVAL)
    return absl::UnimplementedError("the kernel lacks WAIT_KILLABLE_RECV (Linux 5.19)");
  return ErrnoStatus(errno, "install seccomp filter");
}

}  // namespace

absl::StatusOr<UniqueFd> InstallNotifyFilter(const FilterPlan& plan) {
  ASSIGN_OR_RETURN(const int fd, Install(plan));
  return UniqueFd(fd);
}

absl::Status InstallRefusingFilter(const CallFamilies& refuse) { return Install({refuse, false}).status(); }

}  // namespace agentmon
