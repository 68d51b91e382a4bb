#include "common/base/clock.h"

#include <ctime>

#include "absl/time/clock.h"

namespace agentmon {

absl::Time SystemClock::Wall() const { return absl::Now(); }

int64_t SystemClock::BootNs() const {
  timespec ts{};
  clock_gettime(CLOCK_BOOTTIME, &ts);
  return int64_t{ts.tv_sec} * 1'000'000'000 + ts.tv_nsec;
}

}  // namespace agentmon
