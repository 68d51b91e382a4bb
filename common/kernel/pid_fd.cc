#include "common/kernel/pid_fd.h"

#include <errno.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace agentmon {

absl::StatusOr<PidFd> PidFd::Open(pid_t pid) {
  const int fd = static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
  if (fd < 0) {
    const int error = errno == ESRCH ? ENOENT : errno;
    return ErrnoStatus(error, absl::StrCat("pidfd_open ", pid));
  }
  return PidFd(UniqueFd(fd), pid);
}

bool PidFd::Alive() const {
  pollfd p{fd_.get(), POLLIN, 0};
  return ::poll(&p, 1, 0) == 0;
}

absl::Status PidFd::Signal(int signal) const {
  if (::syscall(SYS_pidfd_send_signal, fd_.get(), signal, nullptr, 0) != 0) {
    return ErrnoStatus(errno, absl::StrCat("signal ", signal, " to pid ", pid_));
  }
  return absl::OkStatus();
}

absl::StatusOr<UniqueFd> PidFd::TakeFd(int remote_fd) const {
  const int fd = static_cast<int>(::syscall(SYS_pidfd_getfd, fd_.get(), remote_fd, 0));
  if (fd < 0) return ErrnoStatus(errno, absl::StrCat("descriptor ", remote_fd, " of pid ", pid_));
  return UniqueFd(fd);
}

}  // namespace agentmon
