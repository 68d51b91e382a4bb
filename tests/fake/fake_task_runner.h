// A task runner whose tasks run when the test says so. Single-threaded.
#pragma once

#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "common/base/task_runner.h"

namespace agentmon {

class FakeTaskRunner : public TaskRunner {
 public:
  void Post(Task task) override { tasks_.push_back(std::move(task)); }
  void PostAfter(absl::Duration delay, Task task) override { later_.emplace(now_ + delay, std::move(task)); }
  absl::Status WatchFd(int fd, Task task) override {
    watched_[fd] = std::move(task);
    return absl::OkStatus();
  }
  void UnwatchFd(int fd) override { watched_.erase(fd); }

  void RunPosted() {
    while (!tasks_.empty()) {
      Task task = std::move(tasks_.front());
      tasks_.pop_front();
      task();
    }
  }
  void Advance(absl::Duration by) {
    now_ += by;
    while (!later_.empty() && later_.begin()->first <= now_) {
      Task task = std::move(later_.begin()->second);
      later_.erase(later_.begin());
      task();
      RunPosted();
    }
  }
  void MakeReadable(int fd) { watched_.at(fd)(); }
  void MakeAllReadable() {
    for (const auto& [fd, task] : std::map<int, Task>(watched_)) task();
  }
  size_t timers() const { return later_.size(); }
  bool watches(int fd) const { return watched_.count(fd) != 0; }

 private:
  std::deque<Task> tasks_;
  std::multimap<absl::Duration, Task> later_;
  std::map<int, Task> watched_;
  absl::Duration now_ = absl::ZeroDuration();
};

}  // namespace agentmon
