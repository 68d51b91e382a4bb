#include "daemon/stream/tail.h"

#include <utility>

#include "absl/time/clock.h"
#include "common/base/status.h"

namespace agentmon {

absl::Status Tail::Run(const Backlog& backlog, const Send& send, const std::function<bool()>& cancelled) {
  bool gone = false;
  // A number of 0 would ask for everything; then nothing was stored before.
  if (backlog && subscriber_->joined_at() > 0) {
    RETURN_IF_ERROR(backlog(subscriber_->joined_at(), [&](std::vector<Event> events) {
      gone = !send(std::move(events), 0);
      return !gone;
    }));
  }
  std::vector<Event> events;
  uint64_t gap = 0;
  while (!gone && !cancelled()) {
    const Subscriber::Result result = subscriber_->Next(absl::Now() + kCancelCheck, kChunk, &events, &gap);
    if (result == Subscriber::Result::kEnded) break;
    if (result == Subscriber::Result::kEvents) gone = !send(std::exchange(events, {}), gap);
  }
  return absl::OkStatus();
}

}  // namespace agentmon
