// What protobuf complains of, text that is no UTF-8 above all: any client can cause a line with every call.
#pragma once

#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace agentmon {

// Lets the first complaint through, then one a minute. Any thread.
class ComplaintGate {
 public:
  // 0: say nothing. Else how many complaints, this one among them, were not told yet.
  uint64_t Pass(absl::Time now);

 private:
  absl::Mutex mutex_;
  absl::Time next_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  uint64_t waiting_ ABSL_GUARDED_BY(mutex_) = 0;
};

// Sends protobuf's log lines through a gate to ours, for the whole process.
void LimitProtobufLog();

}  // namespace agentmon
