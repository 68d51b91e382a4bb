// A process held by descriptor, so that its number cannot come to mean another one.
#pragma once

#include <sys/types.h>

#include "absl/status/statusor.h"
#include "common/base/unique_fd.h"

namespace agentmon {

class PidFd {
 public:
  // pidfd_open(2); NotFound when there is no such process.
  static absl::StatusOr<PidFd> Open(pid_t pid);
  // Takes over a pidfd, for example from SO_PEERPIDFD.
  PidFd(UniqueFd fd, pid_t pid) : fd_(std::move(fd)), pid_(pid) {}

  // Still running (not yet a zombie).
  bool Alive() const;
  absl::Status Signal(int signal) const;
  // A duplicate of the process's descriptor (pidfd_getfd(2), close-on-exec); needs ptrace rights.
  absl::StatusOr<UniqueFd> TakeFd(int remote_fd) const;
  int get() const { return fd_.get(); }
  pid_t pid() const { return pid_; }

 private:
  UniqueFd fd_;
  pid_t pid_;
};

}  // namespace agentmon
