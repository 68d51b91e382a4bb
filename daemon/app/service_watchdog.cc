#include "daemon/app/service_watchdog.h"

#include <systemd/sd-daemon.h>

#include <cstdint>
#include <utility>

#include "common/base/log.h"

namespace agentmon {

absl::Duration ServiceWatchdog::AskedTimeout() {
  uint64_t timeout_us = 0;
  if (sd_watchdog_enabled(0, &timeout_us) <= 0) return absl::ZeroDuration();
  return absl::Microseconds(static_cast<int64_t>(timeout_us));
}

ServiceWatchdog::ServiceWatchdog(Deps deps, absl::Duration timeout)
    : deps_(std::move(deps)), interval_(timeout / 2) {
  if (interval_ > absl::ZeroDuration()) StartTimer();
}

void ServiceWatchdog::StartTimer() {
  deps_.core.PostAfter(interval_, [this, alive = alive_] {
    if (!*alive) return;
    StartTimer();
    deps_.core.Post([this, alive] {
      if (*alive) Beat();
    });
  });
}

void ServiceWatchdog::Beat() {
  const bool moves = deps_.makes_progress();
  if (!moves && !std::exchange(stuck_, true)) {
    LogError("the threads that answer agents stand still; the service manager will restart this daemon");
  }
  if (!moves) return;
  stuck_ = false;
  deps_.beat();
}

}  // namespace agentmon
