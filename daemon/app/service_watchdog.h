// Tells the service manager that the daemon works: WatchdogSec= in its unit.
#pragma once

#include <functional>
#include <memory>

#include "absl/time/time.h"
#include "common/base/task_runner.h"

namespace agentmon {

// Core thread. A beat is due twice in each timeout and goes through the core's queue, so that a core that
// stands still gives none; nor does one while `makes_progress` says no. No beat for a timeout: the manager
// kills and restarts us.
class ServiceWatchdog {
 public:
  struct Deps {
    TaskRunner& core;
    std::function<bool()> makes_progress;
    std::function<void()> beat;
  };
  // What the manager asks for; zero: nothing, and then there is no timer.
  static absl::Duration AskedTimeout();

  ServiceWatchdog(Deps deps, absl::Duration timeout);
  ~ServiceWatchdog() { *alive_ = false; }

 private:
  void StartTimer();
  void Beat();

  const Deps deps_;
  const absl::Duration interval_;
  bool stuck_ = false;  // said already
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace agentmon
