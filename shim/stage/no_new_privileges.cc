#include "shim/stage/no_new_privileges.h"

#include <sys/prctl.h>

#include <cerrno>

#include "common/base/status.h"

namespace agentmon {

absl::Status SetNoNewPrivileges() {
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0) return absl::OkStatus();
  return ErrnoStatus(errno, "set no_new_privs");
}

}  // namespace agentmon
