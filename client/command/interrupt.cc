#include "client/command/interrupt.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>

#include "absl/time/clock.h"

namespace agentmon {

Interrupt::Interrupt() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  pthread_sigmask(SIG_BLOCK, &set, &old_mask_);
  signals_.Reset(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  end_.Reset(eventfd(0, EFD_CLOEXEC));
}

// What arrived late is dropped: it asked for the end that is here.
Interrupt::~Interrupt() {
  Stop();
  signalfd_siginfo info;
  (void)!read(signals_.get(), &info, sizeof info);
  pthread_sigmask(SIG_SETMASK, &old_mask_, nullptr);
}

void Interrupt::Stop() {
  if (!thread_.joinable()) return;
  eventfd_write(end_.get(), 1);
  thread_.join();
}

void Interrupt::Cancels(grpc::ClientContext* context, absl::Duration after) {
  thread_ = std::thread([this, context, after] { Watch(context, after); });
}

void Interrupt::Watch(grpc::ClientContext* context, absl::Duration after) {
  const absl::Time deadline = absl::Now() + after;
  pollfd fds[] = {{signals_.get(), POLLIN, 0}, {end_.get(), POLLIN, 0}};
  while (fds[0].revents == 0 && fds[1].revents == 0 && absl::Now() < deadline) {
    const int64_t left = absl::ToInt64Milliseconds(deadline - absl::Now());
    poll(fds, 2, static_cast<int>(std::clamp<int64_t>(left, 0, 3'600'000) + 1));
  }
  if (fds[1].revents != 0) return;
  happened_ = true;
  context->TryCancel();
}

}  // namespace agentmon
