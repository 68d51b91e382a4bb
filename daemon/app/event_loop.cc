#include "daemon/app/event_loop.h"

#include <errno.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/base/status.h"

namespace agentmon {

absl::StatusOr<std::unique_ptr<EventLoop>> EventLoop::Create() {
  sd_event* loop = nullptr;
  if (const int r = sd_event_new(&loop); r < 0) return ErrnoStatus(-r, "make the event loop");
  UniqueFd wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.valid()) return ErrnoStatus(errno, "eventfd");
  const int wake_fd = wake.get();
  auto self = std::unique_ptr<EventLoop>(new EventLoop(loop, std::move(wake)));
  RETURN_IF_ERROR(self->WatchFd(wake_fd, [raw = self.get()] { raw->RunPosted(); }));
  return self;
}

EventLoop::~EventLoop() {
  {
    absl::MutexLock lock(&mutex_);
    closed_ = true;
    posted_.clear();
  }
  for (auto& [fd, watch] : watches_) sd_event_source_unref(watch->source);
  sd_event_unref(loop_);
}

void EventLoop::Post(Task task) {
  bool first;
  {
    absl::MutexLock lock(&mutex_);
    if (closed_) return;
    first = posted_.empty();
    posted_.push_back(std::move(task));
  }
  if (!first) return;  // a wake-up is on its way already
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = ::write(wake_.get(), &one, sizeof(one));
}

void EventLoop::RunPosted() {
  uint64_t count;
  [[maybe_unused]] const ssize_t n = ::read(wake_.get(), &count, sizeof(count));
  std::vector<Task> tasks;
  {
    absl::MutexLock lock(&mutex_);
    tasks.swap(posted_);
  }
  for (Task& task : tasks) task();
}

int EventLoop::OnTime(sd_event_source* source, uint64_t, void* userdata) {
  const Task task = std::move(*static_cast<Task*>(userdata));
  sd_event_source_unref(source);  // frees it after this
  task();
  return 0;
}

void EventLoop::PostAfter(absl::Duration delay, Task task) {
  auto* held = new Task(std::move(task));
  const uint64_t usec = static_cast<uint64_t>(std::max<int64_t>(absl::ToInt64Microseconds(delay), 0));
  // Accuracy of a tenth, up to a second: timers that are near each other share one wake-up.
  const uint64_t accuracy = std::min<uint64_t>(usec / 10, 1'000'000) + 1000;
  sd_event_source* source = nullptr;
  const int r = sd_event_add_time_relative(loop_, &source, CLOCK_MONOTONIC, usec, accuracy, OnTime, held);
  if (r < 0) {
    LogError("timer: ", ErrnoStatus(-r, "add").message());
    delete held;
    return;
  }
  // The loop's from here on, and with it the task: also of timers that never come.
  sd_event_source_set_destroy_callback(source, [](void* task) { delete static_cast<Task*>(task); });
  sd_event_source_set_floating(source, 1);
  sd_event_source_unref(source);
}

int EventLoop::OnIo(sd_event_source*, int, uint32_t, void* userdata) {
  const Task task = static_cast<Watch*>(userdata)->task;  // a copy: the task may unwatch itself
  task();
  return 0;
}

absl::Status EventLoop::WatchFd(int fd, Task task) {
  auto watch = std::make_unique<Watch>();
  watch->task = std::move(task);
  const int r = sd_event_add_io(loop_, &watch->source, fd, EPOLLIN | EPOLLPRI, OnIo, watch.get());
  if (r < 0) return ErrnoStatus(-r, absl::StrCat("watch descriptor ", fd));
  watches_[fd] = std::move(watch);
  return absl::OkStatus();
}

void EventLoop::UnwatchFd(int fd) {
  const auto it = watches_.find(fd);
  if (it == watches_.end()) return;
  sd_event_source_disable_unref(it->second->source);
  watches_.erase(it);
}

int EventLoop::OnSignalSource(sd_event_source*, const signalfd_siginfo*, void* userdata) {
  (*static_cast<Task*>(userdata))();
  return 0;
}

absl::Status EventLoop::OnSignal(int signal, Task task) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, signal);
  if (const int r = pthread_sigmask(SIG_BLOCK, &set, nullptr); r != 0)
    return ErrnoStatus(r, "block a signal");
  signal_tasks_.push_back(std::make_unique<Task>(std::move(task)));
  const int r = sd_event_add_signal(loop_, nullptr, signal, OnSignalSource, signal_tasks_.back().get());
  if (r < 0) return ErrnoStatus(-r, absl::StrCat("wait for signal ", signal));
  return absl::OkStatus();
}

absl::Status EventLoop::Run() {
  const int r = sd_event_loop(loop_);
  return r < 0 ? ErrnoStatus(-r, "event loop") : absl::OkStatus();
}

void EventLoop::RunOnce(absl::Duration timeout) {
  sd_event_run(loop_, static_cast<uint64_t>(absl::ToInt64Microseconds(timeout)));
}

void EventLoop::Quit() { sd_event_exit(loop_, 0); }

}  // namespace agentmon
