#include "daemon/holder/holder_process.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "common/base/clock.h"
#include "common/kernel/seccomp_listener.h"

namespace agentmon {
namespace {

// Keys of the epoll set; everything else is a cgroup id.
constexpr uint64_t kAcceptKey = ~uint64_t{0};
constexpr uint64_t kDaemonKey = kAcceptKey - 1;
constexpr uint64_t kDaemonProcessKey = kAcceptKey - 2;
constexpr int kPeerTimeout_s = 1;  // agents wait as long when there is no daemon

void Watch(int epoll, int operation, int fd, uint32_t events, uint64_t key) {
  epoll_event event{.events = events, .data = {.u64 = key}};
  epoll_ctl(epoll, operation, fd, &event);
}

// Without a daemon: take, answer. With one: only the end is of interest (EPOLLHUP needs no asking).
uint32_t Interest(bool reading) { return reading ? uint32_t{EPOLLIN} : 0; }

}  // namespace

HolderProcess::HolderProcess(std::string socket_path, UniqueFd accept_socket, NotifyJournal journal)
    : socket_path_(std::move(socket_path)),
      accept_socket_(std::move(accept_socket)),
      journal_(std::move(journal)),
      epoll_(epoll_create1(EPOLL_CLOEXEC)) {
  Watch(epoll_.get(), EPOLL_CTL_ADD, accept_socket_.get(), EPOLLIN, kAcceptKey);
}

void HolderProcess::Run() {
  epoll_event events[32];
  while (Wanted()) {
    const int n = epoll_wait(epoll_.get(), events, 32, waits_for_first_ ? kFirstDaemonWait_ms : -1);
    if (n == 0) waits_for_first_ = false;
    for (int i = 0; i < n; ++i) Dispatch(events[i].data.u64, events[i].events);
  }
  // In this order, so that a daemon that still finds the path also finds us, or an end of file.
  unlink(socket_path_.c_str());
}

void HolderProcess::Dispatch(uint64_t key, uint32_t events) {
  switch (key) {
    case kAcceptKey:
      return Accept();
    case kDaemonProcessKey:
      return OnDaemonGone();
    case kDaemonKey:
      if ((events & EPOLLIN) != 0) return OnDaemonMessage();
      return OnDaemonGone();
    default:
      return OnListener(key, events);
  }
}

void HolderProcess::Accept() {
  UniqueFd connection(accept4(accept_socket_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!connection.valid()) return;
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (getsockopt(connection.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || peer.uid != geteuid())
    return;
  const timeval timeout{kPeerTimeout_s, 0};
  setsockopt(connection.get(), SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
  setsockopt(connection.get(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
  const auto hello = ReceiveHolderMessage(connection.get());
  // A daemon of another version learns ours from the welcome and goes.
  if (!hello.ok() && hello.status().code() != absl::StatusCode::kFailedPrecondition) return;
  // Its end may wait in the same batch of events as its successor.
  pollfd ended{daemon_process_.get(), POLLIN, 0};
  if (daemon_.valid() && poll(&ended, 1, 0) > 0) OnDaemonGone();
  if (daemon_.valid()) {
    SendHolderMessage(connection.get(), {.type = HolderMessageType::kBusy}).IgnoreError();
    return;
  }
  UniqueFd process(static_cast<int>(syscall(SYS_pidfd_open, peer.pid, 0)));
  if (!process.valid()) return;
  waits_for_first_ = false;
  SetReading(false);
  daemon_ = std::move(connection);
  daemon_process_ = std::move(process);
  Watch(epoll_.get(), EPOLL_CTL_ADD, daemon_.get(), EPOLLIN, kDaemonKey);
  Watch(epoll_.get(), EPOLL_CTL_ADD, daemon_process_.get(), EPOLLIN, kDaemonProcessKey);
  if (!Greet(daemon_.get()) || !hello.ok()) OnDaemonGone();
}

bool HolderProcess::Greet(int connection) {
  if (!SendHolderMessage(connection, {.type = HolderMessageType::kWelcome}, journal_.fd()).ok()) return false;
  for (const auto& [cgroup_id, listener] : listeners_) {
    const HolderMessage message{.type = HolderMessageType::kListener, .cgroup_id = cgroup_id};
    if (!SendHolderMessage(connection, message, listener.get()).ok()) return false;
  }
  return SendHolderMessage(connection, {.type = HolderMessageType::kEnd, .cgroup_id = alone_since_ns_}).ok();
}

void HolderProcess::OnDaemonMessage() {
  if (!daemon_.valid()) return;  // gone earlier in this batch
  auto received = ReceiveHolderMessage(daemon_.get());
  if (!received.ok()) return OnDaemonGone();
  const uint64_t cgroup_id = received->message.cgroup_id;
  if (received->message.type == HolderMessageType::kAdd && received->fd.valid()) {
    Hold(cgroup_id, std::move(received->fd));
  } else if (received->message.type == HolderMessageType::kRemove) {
    Drop(cgroup_id);
  }
}

void HolderProcess::OnDaemonGone() {
  if (!daemon_.valid()) return;
  // What it had sent before its end still counts: a listener among it is held nowhere else.
  pollfd pending{daemon_.get(), POLLIN, 0};
  while (poll(&pending, 1, 0) > 0 && (pending.revents & POLLIN) != 0) {
    auto received = ReceiveHolderMessage(daemon_.get());
    if (!received.ok()) break;
    if (received->message.type == HolderMessageType::kAdd) {
      Hold(received->message.cgroup_id, std::move(received->fd));
    }
  }
  // By hand, for the same reason as in Drop: a child of the daemon may have the connection.
  Watch(epoll_.get(), EPOLL_CTL_DEL, daemon_.get(), 0, kDaemonKey);
  daemon_.Reset();
  daemon_process_.Reset();
  alone_since_ns_ = static_cast<uint64_t>(SystemClock().BootNs());
  AnswerJournal();
  SetReading(true);
}

void HolderProcess::AnswerJournal() {
  for (NotifySlot& slot : journal_.slots()) {
    const uint64_t cgroup_id = slot.cgroup_id.exchange(0);
    const auto listener = listeners_.find(cgroup_id);
    if (cgroup_id != 0 && slot.request.id != 0 && listener != listeners_.end()) {
      ContinueNotify(listener->second.get(), slot.request.id);
    }
    slot.request = {};
  }
}

void HolderProcess::Hold(uint64_t cgroup_id, UniqueFd listener) {
  Drop(cgroup_id);
  Watch(epoll_.get(), EPOLL_CTL_ADD, listener.get(), Interest(!daemon_.valid()), cgroup_id);
  listeners_[cgroup_id] = std::move(listener);
}

void HolderProcess::Drop(uint64_t cgroup_id) {
  const auto listener = listeners_.find(cgroup_id);
  if (listener == listeners_.end()) return;
  // By hand: the daemon's descriptor keeps the same open file, and with it this entry, alive.
  Watch(epoll_.get(), EPOLL_CTL_DEL, listener->second.get(), 0, cgroup_id);
  listeners_.erase(listener);
}

void HolderProcess::OnListener(uint64_t cgroup_id, uint32_t events) {
  const auto listener = listeners_.find(cgroup_id);
  if (listener == listeners_.end()) return;
  if ((events & EPOLLIN) == 0) {
    if ((events & (EPOLLHUP | EPOLLERR)) != 0) Drop(cgroup_id);
    return;
  }
  if (daemon_.valid()) return;
  seccomp_notif request;
  if (ReceiveNotify(listener->second.get(), &request) == ReceiveResult::kRequest) {
    ContinueNotify(listener->second.get(), request.id);
  }
}

void HolderProcess::SetReading(bool reading) {
  for (const auto& [cgroup_id, listener] : listeners_) {
    Watch(epoll_.get(), EPOLL_CTL_MOD, listener.get(), Interest(reading), cgroup_id);
  }
}

}  // namespace agentmon
