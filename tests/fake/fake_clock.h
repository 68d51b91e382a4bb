// A clock that moves only when told.
#pragma once

#include "common/base/clock.h"

namespace agentmon {

class FakeClock : public Clock {
 public:
  absl::Time Wall() const override { return absl::FromUnixNanos(now_ns_); }
  int64_t BootNs() const override { return now_ns_; }
  void Advance(absl::Duration by) { now_ns_ += absl::ToInt64Nanoseconds(by); }

 private:
  int64_t now_ns_ = 1'000'000'000;
};

}  // namespace agentmon
