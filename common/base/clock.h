// The two times that events carry.
#pragma once

#include <cstdint>

#include "absl/time/time.h"

namespace agentmon {

class Clock {
 public:
  virtual ~Clock() = default;
  virtual absl::Time Wall() const = 0;  // CLOCK_REALTIME
  virtual int64_t BootNs() const = 0;   // CLOCK_BOOTTIME: goes on through suspend, as kernel start times do
};

// The kernel's clocks. Thread-safe, never blocks.
class SystemClock : public Clock {
 public:
  absl::Time Wall() const override;
  int64_t BootNs() const override;
};

}  // namespace agentmon
