// Ends the process, with a line on standard error, when a library that may wait for ever or abort does so:
// gRPC where the system denies it threads, memory or descriptors.
#pragma once

#include <signal.h>
#include <time.h>

#include <string>

#include "absl/time/time.h"

namespace agentmon {

// One at a time, on the main thread, which it lets receive SIGRTMAX meanwhile. Signals, mask and timer are as
// they were when it is gone.
class Watchdog {
 public:
  struct Options {
    absl::Duration patience = absl::InfiniteDuration();
    int exit_status = 1;
    int err_fd = 2;
    std::string on_hang, on_abort;  // whole lines
  };
  explicit Watchdog(const Options& options);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  bool has_timer_ = false;
  timer_t timer_{};
  struct sigaction old_abort_ {
  }, old_alarm_{};
  sigset_t old_mask_{};
};

}  // namespace agentmon
