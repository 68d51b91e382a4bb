// NotifyShared in memory that goes from one daemon to the next, by way of the holder.
#pragma once

#include "absl/status/statusor.h"
#include "common/base/unique_fd.h"
#include "daemon/probe/notify_slot.h"

namespace agentmon {

class NotifyJournal {
 public:
  static absl::StatusOr<NotifyJournal> Create();
  // Of another process. Refuses a descriptor that is not as large as it must be.
  static absl::StatusOr<NotifyJournal> Open(UniqueFd fd);

  int fd() const { return fd_.get(); }
  // Mapped until the process ends: threads that hang may write there after everything else is gone.
  NotifyShared& shared() const { return *shared_; }

 private:
  NotifyJournal(UniqueFd fd, NotifyShared* shared) : fd_(std::move(fd)), shared_(shared) {}

  UniqueFd fd_;
  NotifyShared* shared_;
};

}  // namespace agentmon
