// Carries records from a probe's threads to the core thread. Bounded: a full queue drops and counts.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "common/base/task_runner.h"
#include "daemon/event/record.h"
#include "daemon/probe/probe.h"

namespace agentmon {

// The first record after a quiet time wakes the core thread at once; what follows is taken every
// kDrainInterval, so that a busy session does not cost a wake-up per record.
class RecordQueue : public std::enable_shared_from_this<RecordQueue> {
 public:
  static constexpr absl::Duration kDrainInterval = absl::Milliseconds(5);

  // Core thread. The sink must outlive the queue; tasks that are still posted then do nothing.
  static std::shared_ptr<RecordQueue> Create(TaskRunner& core, RecordSink& sink, size_t capacity_bytes);

  // Any thread; never blocks for longer than the lock. The record carries its size (am_header).
  void Push(absl::Span<const uint8_t> record);
  void CountLost(uint64_t records) { lost_ += records; }
  ProbeStats Stats() const { return {records_, lost_}; }
  // Core thread: hands over what waits.
  void Drain();

 private:
  RecordQueue(TaskRunner& core, RecordSink& sink, size_t capacity_bytes)
      : core_(core), sink_(sink), capacity_bytes_(capacity_bytes) {}
  Task DrainTask();

  TaskRunner& core_;
  RecordSink& sink_;
  const size_t capacity_bytes_;
  std::vector<uint8_t> taken_;  // core thread
  std::atomic<uint64_t> records_{0};
  std::atomic<uint64_t> lost_{0};
  absl::Mutex mutex_;
  std::vector<uint8_t> waiting_ ABSL_GUARDED_BY(mutex_);
  bool drain_is_due_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace agentmon
