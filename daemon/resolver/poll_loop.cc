#include "daemon/resolver/poll_loop.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/time/clock.h"
#include "common/base/status.h"

namespace agentmon {
namespace {

constexpr int kBatch = 64;

// Timers are not moved by a change of the wall clock.
absl::Time Now() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return absl::TimeFromTimespec(now);
}

}  // namespace

absl::StatusOr<std::unique_ptr<PollLoop>> PollLoop::Create() {
  UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll.valid()) return ErrnoStatus(errno, "epoll_create1");
  UniqueFd wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.valid()) return ErrnoStatus(errno, "eventfd");
  std::unique_ptr<PollLoop> loop(new PollLoop(std::move(epoll), std::move(wake)));
  const int fd = loop->wake_.get();
  RETURN_IF_ERROR(loop->Watch(fd, EPOLLIN, [fd](uint32_t) {
    uint64_t count = 0;
    while (::read(fd, &count, sizeof(count)) < 0 && errno == EINTR) {
    }
  }));
  return loop;
}

void PollLoop::Post(Task task) {
  absl::MutexLock lock(&mutex_);
  posted_.push_back(std::move(task));
  const uint64_t one = 1;
  if (posted_.size() == 1 && ::write(wake_.get(), &one, sizeof(one)) < 0) return;  // full: it wakes anyway
}

void PollLoop::Quit() {
  absl::MutexLock lock(&mutex_);
  quit_ = true;
  const uint64_t one = 1;
  if (::write(wake_.get(), &one, sizeof(one)) < 0) return;
}

absl::Status PollLoop::Watch(int fd, uint32_t epoll_events, OnReady on_ready) {
  const auto known = handler_of_.find(fd);
  const bool replaces = known != handler_of_.end();
  epoll_event event{};
  event.events = epoll_events;
  event.data.u64 = next_number_;
  if (::epoll_ctl(epoll_.get(), replaces ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &event) != 0)
    return ErrnoStatus(errno, "epoll_ctl");
  if (replaces) handlers_.erase(known->second);
  handlers_[next_number_] = std::make_shared<OnReady>(std::move(on_ready));
  handler_of_[fd] = next_number_++;
  return absl::OkStatus();
}

void PollLoop::Unwatch(int fd) {
  const auto known = handler_of_.find(fd);
  if (known == handler_of_.end()) return;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  handlers_.erase(known->second);
  handler_of_.erase(known);
}

PollLoop::Timer PollLoop::After(absl::Duration delay, Task task) {
  const Timer timer{Now() + delay, next_number_++};
  timers_.emplace(timer, std::move(task));
  return timer;
}

int PollLoop::TimeoutMs() const {
  if (timers_.empty()) return -1;
  const absl::Duration left = timers_.begin()->first.first - Now();
  return static_cast<int>(
      std::clamp<int64_t>(absl::ToInt64Milliseconds(absl::Ceil(left, absl::Milliseconds(1))), 0, 60'000));
}

void PollLoop::RunPosted() {
  std::vector<Task> tasks;
  {
    absl::MutexLock lock(&mutex_);
    tasks.swap(posted_);
  }
  for (Task& task : tasks) task();
}

void PollLoop::RunTimers() {
  const absl::Time now = Now();
  while (!timers_.empty() && timers_.begin()->first.first <= now) {
    const Task task = std::move(timers_.begin()->second);
    timers_.erase(timers_.begin());
    task();
  }
}

void PollLoop::Run() {
  epoll_event ready[kBatch];
  for (;;) {
    int timeout_ms = TimeoutMs();
    {
      absl::MutexLock lock(&mutex_);
      if (quit_) return;
      if (!posted_.empty()) timeout_ms = 0;
    }
    const int count = ::epoll_wait(epoll_.get(), ready, kBatch, timeout_ms);
    for (int i = 0; i < count; ++i) {
      const auto handler = handlers_.find(ready[i].data.u64);
      if (handler == handlers_.end()) continue;
      const std::shared_ptr<OnReady> kept = handler->second;  // it may unwatch itself
      (*kept)(ready[i].events);
    }
    RunTimers();
    RunPosted();
  }
}

}  // namespace agentmon
