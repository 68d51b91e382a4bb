// Runs tasks on one thread, in the order in which they were posted.
#pragma once

#include <functional>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace agentmon {

using Task = std::function<void()>;

class TaskRunner {
 public:
  virtual ~TaskRunner() = default;
  // From any thread. Never blocks. After the loop has ended the task is dropped.
  virtual void Post(Task task) = 0;
  // From the runner's own thread only.
  virtual void PostAfter(absl::Duration delay, Task task) = 0;
  // Calls the task whenever fd is readable (or has EPOLLPRI or an error), until UnwatchFd.
  // From the runner's own thread only; the fd stays the caller's and must be unwatched before it is closed.
  virtual absl::Status WatchFd(int fd, Task task) = 0;
  virtual void UnwatchFd(int fd) = 0;
};

}  // namespace agentmon
