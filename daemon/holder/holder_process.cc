#include "daemon/holder/holder_process.h"

#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/fanotify.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/kernel/seccomp_listener.h"

namespace agentmon {
namespace {

// Keys of the epoll set; everything else is a cgroup id.
constexpr uint64_t kAcceptKey = ~uint64_t{0};
constexpr uint64_t kDaemonKey = kAcceptKey - 1;
constexpr uint64_t kDaemonProcessKey = kAcceptKey - 2;
constexpr uint64_t kNewcomerKey = kAcceptKey - 3;
constexpr int kPeerTimeout_s = 1;
constexpr int kPeerBuffer_bytes = 8 << 20;  // a greeting with thousands of listeners waits for nobody
constexpr suseconds_t kReceive_us = 20'000;
constexpr uint64_t kGroupBit = uint64_t{1} << 62;  // in the key of a group; ids of cgroups are far below
constexpr int kFdMargin = 256;

int64_t NowNs() { return SystemClock().BootNs(); }

int MillisecondsUntil(int64_t at_ns, int most) {
  return static_cast<int>(std::clamp<int64_t>((at_ns - NowNs()) / 1'000'000 + 1, 0, most));
}

void Watch(int epoll, int operation, int fd, uint32_t events, uint64_t key) {
  epoll_event event{.events = events, .data = {.u64 = key}};
  epoll_ctl(epoll, operation, fd, &event);
}

short Ready(int fd) {
  pollfd poll_fd{fd, POLLIN, 0};
  return poll(&poll_fd, 1, 0) > 0 ? poll_fd.revents : short{0};
}

// Interrupts this thread's calls again and again: a daemon that wakes up may take the request that we go for.
class InterruptLongCalls {
 public:
  InterruptLongCalls() { Set({{0, kReceive_us}, {0, kReceive_us}}); }
  ~InterruptLongCalls() { Set({}); }

 private:
  static void Set(const itimerval& timer) { setitimer(ITIMER_REAL, &timer, nullptr); }
};

}  // namespace

HolderProcess::HolderProcess(std::string socket_path, UniqueFd accept_socket, NotifyJournal journal)
    : socket_path_(std::move(socket_path)),
      accept_socket_(std::move(accept_socket)),
      journal_(std::move(journal)),
      epoll_(epoll_create1(EPOLL_CLOEXEC)) {
  struct stat st {};
  if (lstat(socket_path_.c_str(), &st) == 0) socket_inode_ = st.st_ino;
  struct sigaction nothing {};
  nothing.sa_handler = +[](int) {};
  sigaction(SIGALRM, &nothing, nullptr);
  Watch(epoll_.get(), EPOLL_CTL_ADD, accept_socket_.get(), EPOLLIN, kAcceptKey);
}

void HolderProcess::Run() {
  epoll_event events[32];
  while (Wanted()) {
    const int n = epoll_wait(epoll_.get(), events, 32, Timeout_ms());
    if (n == 0 && watched_ == 0) waits_for_first_ = false;
    for (int i = 0; i < n; ++i) Dispatch(events[i].data.u64, events[i].events);
    if (watched_ > 0 && NowNs() >= next_look_ns_) LookAtAll();
    if (Patient() && NowNs() >= patient_until_ns_) OnPatienceOver();
    if (losses_.next_ns() != 0 && NowNs() >= losses_.next_ns()) losses_.Act();
  }
  // In this order, so that a daemon that still finds the path also finds us, or an end of file.
  RemoveSocket();
}

void HolderProcess::RemoveSocket() const {
  struct stat st {};
  if (lstat(socket_path_.c_str(), &st) == 0 && st.st_ino == socket_inode_) unlink(socket_path_.c_str());
}

int HolderProcess::Timeout_ms() const {
  if (Patient()) return MillisecondsUntil(patient_until_ns_, watched_ > 0 ? kLook_ms : kPatience_ms);
  if (losses_.next_ns() != 0) return MillisecondsUntil(losses_.next_ns(), watched_ > 0 ? kLook_ms : INT_MAX);
  if (watched_ == 0) return waits_for_first_ ? kFirstDaemonWait_ms : -1;
  return MillisecondsUntil(next_look_ns_, kLook_ms);
}

void HolderProcess::Dispatch(uint64_t key, uint32_t events) {
  switch (key) {
    case kAcceptKey:
      return Accept();
    case kNewcomerKey:
      return OnNewcomer();
    case kDaemonProcessKey:
      return OnDaemonGone();
    case kDaemonKey:
      if ((events & EPOLLIN) != 0) return OnDaemonMessage();
      return OnDaemonGone();
    default:
      if ((key & kGroupBit) == 0) return OnListener(key, events);
      return OnGroup(key & ~kGroupBit);
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
  setsockopt(connection.get(), SOL_SOCKET, SO_SNDBUFFORCE, &kPeerBuffer_bytes, sizeof(kPeerBuffer_bytes));
  DropNewcomer();  // one that says nothing is in nobody's way
  newcomer_ = std::move(connection);
  Watch(epoll_.get(), EPOLL_CTL_ADD, newcomer_.get(), EPOLLIN, kNewcomerKey);
}

void HolderProcess::DropNewcomer() {
  if (newcomer_.valid()) Watch(epoll_.get(), EPOLL_CTL_DEL, newcomer_.get(), 0, kNewcomerKey);
  newcomer_.Reset();
}

void HolderProcess::OnNewcomer() {
  if (!newcomer_.valid() || Ready(newcomer_.get()) == 0) return;  // of the one before, in the same batch
  Watch(epoll_.get(), EPOLL_CTL_DEL, newcomer_.get(), 0, kNewcomerKey);
  UniqueFd connection = std::move(newcomer_);
  const auto hello = ReceiveHolderMessage(connection.get());
  // A daemon of another version learns ours from the welcome and goes.
  if (!hello.ok() && hello.status().code() != absl::StatusCode::kFailedPrecondition) return;
  // The end of one may wait in the same batch of events as its successor.
  if (daemon_.valid() && Ready(daemon_process_.get()) != 0) OnDaemonGone();
  if (daemon_.valid()) {
    SendHolderMessage(connection.get(), {.type = HolderMessageType::kBusy}).IgnoreError();
    return;
  }
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (getsockopt(connection.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return;
  UniqueFd process(static_cast<int>(syscall(SYS_pidfd_open, peer.pid, 0)));
  if (!process.valid()) return;
  waits_for_first_ = false;
  losses_.OnDaemon();
  // From here on the daemon reads them.
  for (auto& [cgroup_id, group] : groups_) WakeForGroup(cgroup_id, group);
  daemon_ = std::move(connection);
  daemon_process_ = std::move(process);
  Watch(epoll_.get(), EPOLL_CTL_ADD, daemon_.get(), EPOLLIN, kDaemonKey);
  Watch(epoll_.get(), EPOLL_CTL_ADD, daemon_process_.get(), EPOLLIN, kDaemonProcessKey);
  if (!Greet(daemon_.get()) || !hello.ok()) OnDaemonGone();
}

bool HolderProcess::Greet(int connection) {
  if (!SendHolderMessage(connection, {.type = HolderMessageType::kWelcome, .count = 2}, journal_.fd()).ok())
    return false;
  for (const auto& [cgroup_id, held] : listeners_) {
    const HolderMessage message{.type = HolderMessageType::kListener, .cgroup_id = cgroup_id};
    if (!SendHolderMessage(connection, message, held.fd.get()).ok()) return false;
  }
  for (const auto& [cgroup_id, group] : groups_) {
    const HolderMessage message{.type = HolderMessageType::kGroup, .cgroup_id = cgroup_id};
    if (!SendHolderMessage(connection, message, group.fd.get()).ok()) return false;
  }
  for (const auto& [cgroup_id, channel] : mounts_) {
    const HolderMessage message{.type = HolderMessageType::kMounts, .cgroup_id = cgroup_id};
    if (!SendHolderMessage(connection, message, channel.get()).ok()) return false;
  }
  return SendHolderMessage(connection, {.type = HolderMessageType::kEnd, .count = alone_since_ns_}).ok();
}

void HolderProcess::OnDaemonMessage() {
  if (!daemon_.valid()) return;  // gone earlier in this batch
  auto received = ReceiveHolderMessage(daemon_.get());
  if (!received.ok()) return OnDaemonGone();
  const uint64_t cgroup_id = received->message.cgroup_id;
  if (received->message.type == HolderMessageType::kAdd && received->fd.valid()) {
    Hold(cgroup_id, std::move(received->fd), Server::kDaemon, received->message.count);
  } else if (received->message.type == HolderMessageType::kAddGroup && received->fd.valid()) {
    HoldGroup(cgroup_id, std::move(received->fd));
  } else if (received->message.type == HolderMessageType::kAddMounts && received->fd.valid()) {
    mounts_[cgroup_id] = std::move(received->fd);
  } else if (received->message.type == HolderMessageType::kOnLoss && received->fd.valid()) {
    SetLossAction(std::move(received->fd), received->message.count);
  } else if (received->message.type == HolderMessageType::kTake) {
    Take(cgroup_id);
  } else if (received->message.type == HolderMessageType::kRemove) {
    Drop(cgroup_id);
  }
}

void HolderProcess::Take(uint64_t cgroup_id) {
  HolderMessage taken{.type = HolderMessageType::kTaken, .cgroup_id = cgroup_id};
  const auto held = listeners_.find(cgroup_id);
  if (held != listeners_.end()) {
    Serve(cgroup_id, held->second, Server::kDaemon);
    taken.count = held->second.answered;
    held->second.answered = 0;
  }
  if (!SendHolderMessage(daemon_.get(), taken).ok()) OnDaemonGone();
}

void HolderProcess::OnDaemonGone() {
  if (!daemon_.valid()) return;
  // What it had sent before its end still counts: a listener among it is held nowhere else.
  while ((Ready(daemon_.get()) & POLLIN) != 0) {
    auto received = ReceiveHolderMessage(daemon_.get());
    if (!received.ok()) break;
    if (received->message.type == HolderMessageType::kAdd) {
      Hold(received->message.cgroup_id, std::move(received->fd), Server::kHolder, received->message.count);
    } else if (received->message.type == HolderMessageType::kAddGroup) {
      HoldGroup(received->message.cgroup_id, std::move(received->fd));
    } else if (received->message.type == HolderMessageType::kAddMounts) {
      mounts_[received->message.cgroup_id] = std::move(received->fd);
    } else if (received->message.type == HolderMessageType::kOnLoss && received->fd.valid()) {
      SetLossAction(std::move(received->fd), received->message.count);
    }
  }
  // By hand, for the same reason as in Drop: a child of the daemon may have the connection.
  Watch(epoll_.get(), EPOLL_CTL_DEL, daemon_.get(), 0, kDaemonKey);
  daemon_.Reset();
  daemon_process_.Reset();
  alone_since_ns_ = static_cast<uint64_t>(NowNs());
  patient_until_ns_ = NowNs() + int64_t{kPatience_ms} * 1'000'000;
  for (auto& [cgroup_id, group] : groups_) {
    if (group.watched) --watched_;
    group.watched = false;
    Watch(epoll_.get(), EPOLL_CTL_MOD, group.fd.get(), 0, cgroup_id | kGroupBit);
    SweepGroup(group.fd.get());
  }
  for (auto& [cgroup_id, held] : listeners_) {
    AnswerTaken(cgroup_id, held);
    Serve(cgroup_id, held, Server::kHolder);
  }
  for (NotifySlot& slot : journal_.shared().slots) {
    slot.cgroup_id = 0;
    slot.request = {};
  }
}

void HolderProcess::OnPatienceOver() {
  patient_until_ns_ = 0;
  // First: an agent that is to stand still sees no denial.
  if (!daemon_.valid()) losses_.OnLoss(NowNs());
  // Also those that a daemon which is just starting has not come to.
  for (auto& [cgroup_id, held] : listeners_) {
    if (held.closed && held.server == Server::kHolder) Serve(cgroup_id, held, Server::kHolder);
  }
  if (daemon_.valid()) return;  // it reads the groups, and is watched over
  for (const auto& [cgroup_id, group] : groups_)
    Watch(epoll_.get(), EPOLL_CTL_MOD, group.fd.get(), EPOLLIN, cgroup_id | kGroupBit);
}

void HolderProcess::HoldGroup(uint64_t cgroup_id, UniqueFd fd) {
  Group& group = groups_[cgroup_id];
  group.fd = std::move(fd);
  Watch(epoll_.get(), EPOLL_CTL_ADD, group.fd.get(), 0, cgroup_id | kGroupBit);
  if (daemon_.valid()) WakeForGroup(cgroup_id, group);
}

void HolderProcess::SetLossAction(UniqueFd directory, uint64_t action) {
  auto cgroup = Cgroup::Open(absl::StrCat("/proc/self/fd/", directory.get(), "/."));
  if (!cgroup.ok() || action > static_cast<uint64_t>(LossAction::kKill)) return;
  losses_.Set(std::move(*cgroup), static_cast<LossAction>(action));
}

void HolderProcess::WakeForGroup(uint64_t cgroup_id, Group& group) {
  if (group.watched) --watched_;
  group.watched = false;
  Watch(epoll_.get(), EPOLL_CTL_MOD, group.fd.get(), EPOLLIN | EPOLLONESHOT, cgroup_id | kGroupBit);
}

void HolderProcess::OnGroup(uint64_t cgroup_id) {
  const auto found = groups_.find(cgroup_id);
  if (found == groups_.end()) return;
  Group& group = found->second;
  if (!daemon_.valid()) return DenyGroup(group.fd.get());
  if (group.watched) return;
  group.watched = true;
  group.waited = group.quiet = 0;
  group.turns = journal_.shared().TurnsOf(~cgroup_id);
  if (watched_++ == 0) next_look_ns_ = NowNs() + int64_t{kLook_ms} * 1'000'000;
}

// A daemon that stands still leaves its questions in the queue, or has taken them and answers no more.
void HolderProcess::LookAtGroup(uint64_t cgroup_id, Group& group) {
  const uint64_t turns = journal_.shared().TurnsOf(~cgroup_id);
  const bool waits = (Ready(group.fd.get()) & POLLIN) != 0 || turns % 2 == 1;
  if (turns != group.turns) {
    group.turns = turns;
    group.waited = group.quiet = 0;
  } else if (waits) {
    group.quiet = 0;
    if (++group.waited < kStepInLooks) return;
    SweepGroup(group.fd.get());
    while ((Ready(group.fd.get()) & POLLIN) != 0) DenyGroup(group.fd.get());
  } else if (++group.quiet >= kQuietLooks) {
    WakeForGroup(cgroup_id, group);
  }
}

// A question is answered by the number of the descriptor that the dead reader had for it, and several may
// have had the same one after the other.
void HolderProcess::SweepGroup(int group) {
  const int last = static_cast<int>(journal_.shared().highest_event_fd.load()) + kFdMargin;
  for (int fd = 0; fd <= last; ++fd) {
    const fanotify_response response{fd, FAN_DENY};
    while (write(group, &response, sizeof(response)) == sizeof(response)) continue;
  }
}

void HolderProcess::DenyGroup(int group) {
  alignas(fanotify_event_metadata) char buffer[4096];
  const ssize_t n = read(group, buffer, sizeof(buffer));
  ssize_t left = n;
  const auto* event = reinterpret_cast<const fanotify_event_metadata*>(buffer);
  for (; n > 0 && FAN_EVENT_OK(event, left); event = FAN_EVENT_NEXT(event, left)) {
    if (event->fd < 0) continue;
    const fanotify_response response{event->fd, FAN_DENY};
    if ((event->mask & (FAN_OPEN_PERM | FAN_OPEN_EXEC_PERM)) != 0) {
      [[maybe_unused]] const ssize_t written = write(group, &response, sizeof(response));
    }
    close(event->fd);
  }
}

void HolderProcess::Hold(uint64_t cgroup_id, UniqueFd listener, Server server, uint64_t closed) {
  DropListener(cgroup_id);
  Held& held = listeners_[cgroup_id];
  held.closed = closed != 0;
  held.sockets_closed = (closed & kSocketsClosed) != 0;
  held.fd = std::move(listener);
  Watch(epoll_.get(), EPOLL_CTL_ADD, held.fd.get(), 0, cgroup_id);
  Serve(cgroup_id, held, server);
}

void HolderProcess::Drop(uint64_t cgroup_id) {
  DropListener(cgroup_id);
  losses_.Remove(cgroup_id);
  mounts_.erase(cgroup_id);
  const auto group = groups_.find(cgroup_id);
  if (group == groups_.end()) return;
  if (group->second.watched) --watched_;
  Watch(epoll_.get(), EPOLL_CTL_DEL, group->second.fd.get(), 0, cgroup_id);
  groups_.erase(group);
}

void HolderProcess::DropListener(uint64_t cgroup_id) {
  const auto listener = listeners_.find(cgroup_id);
  if (listener == listeners_.end()) return;
  if (listener->second.watched) --watched_;
  // By hand: the daemon's descriptor keeps the same open file, and with it this entry, alive.
  Watch(epoll_.get(), EPOLL_CTL_DEL, listener->second.fd.get(), 0, cgroup_id);
  listeners_.erase(listener);
}

void HolderProcess::Serve(uint64_t cgroup_id, Held& held, Server server) {
  held.server = server;
  if (server != Server::kHolderInPlace && held.watched) {
    held.watched = false;
    --watched_;
  }
  // Of a listener that the daemon serves one wake-up is asked for, which starts the watching: more of them
  // would slow the calls down.
  uint32_t events = server == Server::kDaemon ? EPOLLIN | EPOLLONESHOT : EPOLLIN;
  if (held.closed && server == Server::kHolder && Patient()) events = 0;
  Watch(epoll_.get(), EPOLL_CTL_MOD, held.fd.get(), events, cgroup_id);
}

void HolderProcess::OnListener(uint64_t cgroup_id, uint32_t events) {
  const auto listener = listeners_.find(cgroup_id);
  if (listener == listeners_.end()) return;
  Held& held = listener->second;
  if ((events & EPOLLIN) == 0) {
    TellLost(cgroup_id, held);
    if ((events & (EPOLLHUP | EPOLLERR)) != 0) DropListener(cgroup_id);
    return;
  }
  if (held.server != Server::kHolder) StartWatching(cgroup_id, held);
  if (held.server == Server::kHolderInPlace && journal_.shared().TurnsOf(cgroup_id) != held.turns) {
    return Look(cgroup_id, held);  // it is back
  }
  if (held.server != Server::kDaemon) Answer(held);
}

void HolderProcess::Answer(Held& held) {
  if ((Ready(held.fd.get()) & POLLIN) == 0) return;
  seccomp_notif request;
  const InterruptLongCalls interrupt;
  if (ReceiveNotify(held.fd.get(), &request) == ReceiveResult::kRequest && AnswerOne(held, request)) {
    ++held.answered;
  }
}

// Behind calls that name a socket stands the kernel as a rule, which refuses those on unix sockets that
// nobody has judged.
bool HolderProcess::AnswerOne(const Held& held, const seccomp_notif& request) const {
  const bool names_socket = calls_.FindSocket(request.data.arch, request.data.nr) != nullptr;
  if (!held.closed || (names_socket && !held.sockets_closed))
    return ContinueNotify(held.fd.get(), request.id);
  return AnswerNotify(held.fd.get(), request.id, names_socket ? EPERM : EACCES);
}

void HolderProcess::StartWatching(uint64_t cgroup_id, Held& held) {
  if (held.watched) return;
  held.watched = true;
  held.waited = held.quiet = 0;
  if (held.server == Server::kDaemon) held.turns = journal_.shared().TurnsOf(cgroup_id);
  if (watched_++ == 0) next_look_ns_ = NowNs() + int64_t{kLook_ms} * 1'000'000;
}

void HolderProcess::StopWatching(uint64_t cgroup_id, Held& held) {
  held.watched = false;
  --watched_;
  Serve(cgroup_id, held, held.server);
}

void HolderProcess::LookAtAll() {
  next_look_ns_ = NowNs() + int64_t{kLook_ms} * 1'000'000;
  std::vector<uint64_t> watched;
  for (const auto& [cgroup_id, held] : listeners_) {
    if (held.watched) watched.push_back(cgroup_id);
  }
  for (const uint64_t cgroup_id : watched) Look(cgroup_id, listeners_[cgroup_id]);
  for (auto& [cgroup_id, group] : groups_) {
    if (group.watched) LookAtGroup(cgroup_id, group);
  }
}

void HolderProcess::Look(uint64_t cgroup_id, Held& held) {
  TellLost(cgroup_id, held);
  const short ready = Ready(held.fd.get());
  if ((ready & POLLIN) == 0 && (ready & (POLLHUP | POLLERR)) != 0 && held.answered == 0)
    return DropListener(cgroup_id);
  const uint64_t turns = journal_.shared().TurnsOf(cgroup_id);
  if (turns != held.turns) {
    held.turns = turns;
    held.waited = held.quiet = 0;
    // In its place we were asked for all requests; from here on for none until it is quiet.
    if (held.server == Server::kHolderInPlace)
      Watch(epoll_.get(), EPOLL_CTL_MOD, held.fd.get(), 0, cgroup_id);
    held.server = Server::kDaemon;
    return;
  }
  if ((ready & POLLIN) != 0 || DaemonHasRequest(cgroup_id)) {
    held.quiet = 0;
    if (++held.waited < kStepInLooks) return;
    AnswerTaken(cgroup_id, held);
    Serve(cgroup_id, held, Server::kHolderInPlace);
  } else if (++held.quiet >= kQuietLooks && held.answered == 0) {
    StopWatching(cgroup_id, held);
  }
}

void HolderProcess::TellLost(uint64_t cgroup_id, Held& held) {
  if (held.answered == 0 || !daemon_.valid()) return;
  const HolderMessage message{
      .type = HolderMessageType::kLost, .cgroup_id = cgroup_id, .count = held.answered};
  // A daemon that stands still reads it later; when its buffer is full, the count waits here.
  if (SendHolderMessage(daemon_.get(), message, -1, MSG_DONTWAIT).ok()) held.answered = 0;
}

bool HolderProcess::DaemonHasRequest(uint64_t cgroup_id) const {
  for (int i = 0; i < kNotifySlots; ++i) {
    const NotifySlot& slot = journal_.shared().slots[i];
    if (slot.cgroup_id == cgroup_id && slot.request.id != 0 && slot.request.id != answered_in_slot_[i])
      return true;
  }
  return false;
}

void HolderProcess::AnswerTaken(uint64_t cgroup_id, Held& held) {
  for (int i = 0; i < kNotifySlots; ++i) {
    const NotifySlot& slot = journal_.shared().slots[i];
    const uint64_t id = slot.request.id;
    if (slot.cgroup_id != cgroup_id || id == 0) continue;
    answered_in_slot_[i] = id;
    if (AnswerOne(held, slot.request)) ++held.answered;
  }
}

}  // namespace agentmon
