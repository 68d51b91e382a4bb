// A child process behind the real notify filter.
#pragma once

#include <sys/types.h>

#include <functional>

#include "common/base/unique_fd.h"

namespace agentmon {

class FilteredChild {
 public:
  // Forks. The child installs the filter, hands its listener over and runs `body` once Go is called; its exit
  // status is what body returns. Aborts the test program when the set-up fails.
  // `before` runs in the child before the filter. Without the filter there is no listener.
  explicit FilteredChild(const std::function<int()>& body, const std::function<void()>& before = {},
                         bool filter = true);
  ~FilteredChild();  // kills it when it still runs
  FilteredChild(const FilteredChild&) = delete;
  FilteredChild& operator=(const FilteredChild&) = delete;

  pid_t pid() const { return pid_; }
  UniqueFd TakeListener() { return std::move(listener_); }
  void Go();
  void Signal(int signal) const;
  // Exit status; 128 + signal when one ended it, also after the deadline (SIGKILL).
  int Wait(int timeout_s = 30);
  bool Ended();

 private:
  pid_t pid_ = -1;
  int status_ = -1;
  bool reaped_ = false;
  UniqueFd listener_;
  UniqueFd go_;
};

}  // namespace agentmon
