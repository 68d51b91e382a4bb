// What the tests of the BPF probes share: a runner on poll(2), a cgroup for a test, a sink that
// keeps decoded events.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/task_runner.h"
#include "common/kernel/cgroup.h"
#include "daemon/event/decode.h"
#include "daemon/probe/bpf_ring.h"

namespace agentmon {

// For what the test itself needs; also used where Catch is not.
inline void Must(bool ok, const char* what) {
  if (ok) return;
  std::perror(what);
  std::abort();
}

// Runs on the calling thread, inside RunUntil.
class PollTaskRunner : public TaskRunner {
 public:
  void Post(Task task) override { tasks_.push_back(std::move(task)); }
  void PostAfter(absl::Duration delay, Task task) override {
    timers_.emplace(absl::Now() + delay, std::move(task));
  }
  absl::Status WatchFd(int fd, Task task) override {
    fds_[fd] = std::move(task);
    return absl::OkStatus();
  }
  void UnwatchFd(int fd) override { fds_.erase(fd); }

  // True when the condition came true in time.
  bool RunUntil(const std::function<bool()>& condition, absl::Duration limit = absl::Seconds(20)) {
    const absl::Time deadline = absl::Now() + limit;
    while (!condition()) {
      if (absl::Now() >= deadline) return false;
      RunOnce(std::min(deadline, timers_.empty() ? deadline : timers_.begin()->first));
    }
    return true;
  }
  int wakes() const { return wakes_; }

 private:
  void RunOnce(absl::Time until) {
    std::vector<pollfd> polls;
    for (const auto& [fd, task] : fds_) polls.push_back({fd, POLLIN, 0});
    const absl::Duration wait = std::clamp(until - absl::Now(), absl::ZeroDuration(), absl::Milliseconds(20));
    const timespec timeout = absl::ToTimespec(tasks_.empty() ? wait : absl::ZeroDuration());
    if (ppoll(polls.data(), polls.size(), &timeout, nullptr) > 0) {
      for (const pollfd& p : polls) {
        if (p.revents == 0) continue;
        ++wakes_;
        fds_.at(p.fd)();
      }
    }
    while (!timers_.empty() && timers_.begin()->first <= absl::Now()) {
      Task task = std::move(timers_.begin()->second);
      timers_.erase(timers_.begin());
      task();
    }
    std::deque<Task> tasks;
    tasks.swap(tasks_);
    for (Task& task : tasks) task();
  }

  std::deque<Task> tasks_;
  std::multimap<absl::Time, Task> timers_;
  std::map<int, Task> fds_;
  int wakes_ = 0;
};

// A directory agentmon-test-PID-N of the cgroup2 hierarchy, or one below; gone with its processes.
class TestCgroup {
 public:
  explicit TestCgroup(const std::string& parent = "")
      : cgroup_(*Cgroup::Create(parent.empty() ? NewPath() : parent + "/s" + std::to_string(++count_))) {}
  ~TestCgroup() {
    (void)cgroup_.Kill();
    const absl::Time deadline = absl::Now() + absl::Seconds(10);
    while (!cgroup_.RemoveTree().ok() && absl::Now() < deadline) poll(nullptr, 0, 1);
  }
  const Cgroup& operator*() const { return cgroup_; }
  const Cgroup* operator->() const { return &cgroup_; }

 private:
  static std::string NewPath() {
    return absl::StrCat(*FindCgroup2Mount(), "/agentmon-test-", getpid(), "-", ++count_);
  }
  static inline std::atomic<int> count_ = 0;
  Cgroup cgroup_;
};

class EventCollector : public RecordSink {
 public:
  void OnRecord(absl::Span<const uint8_t> record) override {
    absl::StatusOr<Decoded> decoded = Decode(record, 0);
    if (decoded.ok()) {
      events.push_back(*std::move(decoded));
    } else {
      ++malformed;
    }
  }
  size_t Count(v1::EventKind kind) const {
    size_t count = 0;
    for (const Decoded& d : events) count += d.event.kind() == kind;
    return count;
  }
  std::vector<Event> Of(v1::EventKind kind, pid_t pid = 0) const {
    std::vector<Event> found;
    for (const Decoded& d : events) {
      if (d.event.kind() == kind && (pid == 0 || d.event.process().pid() == pid)) found.push_back(d.event);
    }
    return found;
  }
  bool Exited(pid_t pid) const { return !Of(v1::EXIT, pid).empty(); }

  std::vector<Decoded> events;
  size_t malformed = 0;
};

// Starts a child that is in `cgroup` before it runs `body`; its exit status is what body returns.
inline pid_t RunIn(const Cgroup& cgroup, const std::function<int()>& body) {
  int go[2] = {-1, -1};
  Must(pipe2(go, O_CLOEXEC) == 0, "pipe");
  const pid_t pid = fork();
  if (pid == 0) {
    close(go[1]);
    char byte;
    const bool told = read(go[0], &byte, 1) == 1;
    close(go[0]);
    _exit(told ? body() : 99);
  }
  close(go[0]);
  const absl::Status moved = cgroup.AddProcess(pid);
  Must(moved.ok() && write(go[1], "g", 1) == 1, "move a child into the cgroup");
  close(go[1]);
  return pid;
}

inline int WaitFor(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

}  // namespace agentmon
