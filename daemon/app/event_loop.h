// The core thread's loop: sd-event behind the TaskRunner interface.
#pragma once

#include <systemd/sd-event.h>

#include <atomic>
#include <map>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/base/task_runner.h"
#include "common/base/unique_fd.h"

namespace agentmon {

class EventLoop : public TaskRunner {
 public:
  static absl::StatusOr<std::unique_ptr<EventLoop>> Create();
  ~EventLoop() override;

  void Post(Task task) override;
  void PostAfter(absl::Duration delay, Task task) override;
  absl::Status WatchFd(int fd, Task task) override;
  void UnwatchFd(int fd) override;

  // Calls the task on the core thread for each signal; the signal is blocked in the calling thread, which
  // must be the only one yet, so that all later threads inherit the block.
  absl::Status OnSignal(int signal, Task task);
  absl::Status Run();  // until Quit
  // Waits for one thing to happen and handles it, for the timeout at most.
  void RunOnce(absl::Duration timeout);
  void Quit();                               // core thread
  sd_event* event() const { return loop_; }  // for what has a source of its own on it

 private:
  EventLoop(sd_event* loop, UniqueFd wake) : loop_(loop), wake_(std::move(wake)) {}
  void RunPosted();
  static int OnIo(sd_event_source* source, int fd, uint32_t events, void* userdata);
  static int OnTime(sd_event_source* source, uint64_t usec, void* userdata);
  static int OnSignalSource(sd_event_source* source, const signalfd_siginfo* info, void* userdata);

  struct Watch {
    sd_event_source* source = nullptr;
    Task task;
  };
  sd_event* loop_;
  UniqueFd wake_;  // eventfd: something was posted
  absl::Mutex mutex_;
  std::vector<Task> posted_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<int, std::unique_ptr<Watch>> watches_;
  std::vector<std::unique_ptr<Task>> signal_tasks_;
};

}  // namespace agentmon
