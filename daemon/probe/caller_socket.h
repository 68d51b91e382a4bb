// The socket that a waiting caller means by a number.
#pragma once

#include <sys/types.h>

#include <cstdint>

#include "common/base/unique_fd.h"

namespace agentmon {

struct CallerSocket {
  UniqueFd fd;    // shares its open file with the caller; not valid: `error` says why
  int error = 0;  // EBADF; EPERM where it cannot be taken
  int domain = -1, type = 0, protocol = 0;  // AF_, SOCK_, IPPROTO_; domain -1: no socket

  bool inet() const;
  bool stream() const;
  bool blocking() const;  // at this moment
  uint64_t cookie() const;
};

// tid: of a caller that waits. Right also for a thread that has a table of its own.
CallerSocket TakeSocket(pid_t tid, pid_t tgid, int fd);

// Whether nobody but the caller itself can change what its numbers mean while it waits. That no other process
// shares its table, the session's filter sees to.
bool OwnsItsTable(pid_t tgid);

}  // namespace agentmon
