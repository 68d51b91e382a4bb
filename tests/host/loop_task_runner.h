// A real task runner for tests: tasks come from any thread and run on the test's thread, inside RunUntil.
#pragma once

#include <poll.h>

#include <deque>
#include <functional>
#include <map>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "common/base/task_runner.h"

namespace agentmon {

class LoopTaskRunner : public TaskRunner {
 public:
  void Post(Task task) override {
    absl::MutexLock lock(&mutex_);
    due_.emplace(absl::Now(), std::move(task));
  }
  void PostAfter(absl::Duration delay, Task task) override {
    absl::MutexLock lock(&mutex_);
    due_.emplace(absl::Now() + delay, std::move(task));
  }
  absl::Status WatchFd(int fd, Task task) override {
    watched_[fd] = std::move(task);
    return absl::OkStatus();
  }
  void UnwatchFd(int fd) override { watched_.erase(fd); }

  // False when the deadline passed first.
  bool RunUntil(const std::function<bool()>& done, absl::Duration timeout = absl::Seconds(10)) {
    const absl::Time deadline = absl::Now() + timeout;
    while (!done()) {
      if (absl::Now() > deadline) return false;
      if (!RunOne()) PollOnce();
    }
    return true;
  }

 private:
  bool RunOne() {
    Task task;
    {
      absl::MutexLock lock(&mutex_);
      if (due_.empty() || due_.begin()->first > absl::Now()) return false;
      task = std::move(due_.begin()->second);
      due_.erase(due_.begin());
    }
    task();
    return true;
  }
  void PollOnce() {
    std::vector<pollfd> fds;
    for (const auto& [fd, task] : watched_) fds.push_back({fd, POLLIN | POLLPRI, 0});
    if (poll(fds.data(), fds.size(), 1) <= 0) return;
    for (const pollfd& fd : fds) {
      if (fd.revents != 0 && watched_.count(fd.fd) != 0) watched_[fd.fd]();
    }
  }

  absl::Mutex mutex_;
  std::multimap<absl::Time, Task> due_ ABSL_GUARDED_BY(mutex_);
  std::map<int, Task> watched_;
};

}  // namespace agentmon
