#include "daemon/probe/record_queue.h"

#include <cstring>

#include "bpf/event_abi.h"

namespace agentmon {

std::shared_ptr<RecordQueue> RecordQueue::Create(TaskRunner& core, RecordSink& sink, size_t capacity_bytes) {
  return std::shared_ptr<RecordQueue>(new RecordQueue(core, sink, capacity_bytes));
}

void RecordQueue::Push(absl::Span<const uint8_t> record) {
  bool wake = false;
  {
    absl::MutexLock lock(&mutex_);
    if (waiting_.size() + record.size() > capacity_bytes_) {
      ++lost_;
      return;
    }
    waiting_.insert(waiting_.end(), record.begin(), record.end());
    wake = !drain_is_due_;
    drain_is_due_ = true;
  }
  if (wake) core_.Post(DrainTask());
}

Task RecordQueue::DrainTask() {
  return [queue = weak_from_this()] {
    if (auto alive = queue.lock()) alive->Drain();
  };
}

void RecordQueue::Drain() {
  taken_.clear();
  {
    absl::MutexLock lock(&mutex_);
    if (waiting_.empty()) {
      drain_is_due_ = false;
      return;
    }
    taken_.swap(waiting_);
  }
  for (size_t at = 0; at < taken_.size();) {
    am_header header;
    std::memcpy(&header, &taken_[at], sizeof(header));
    ++records_;
    sink_.OnRecord(absl::MakeConstSpan(taken_).subspan(at, header.size));
    at += header.size;
  }
  core_.PostAfter(kDrainInterval, DrainTask());
}

}  // namespace agentmon
