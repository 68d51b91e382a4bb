// Memory shared by the daemon and the holder: the requests that the daemon has taken and not yet answered.
#pragma once

#include "absl/status/statusor.h"
#include "absl/types/span.h"
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
  absl::Span<NotifySlot> slots() const { return slots_; }

 private:
  NotifyJournal(UniqueFd fd, absl::Span<NotifySlot> slots) : fd_(std::move(fd)), slots_(slots) {}

  UniqueFd fd_;
  absl::Span<NotifySlot> slots_;
};

}  // namespace agentmon
