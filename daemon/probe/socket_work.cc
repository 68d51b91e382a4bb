#include "daemon/probe/socket_work.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/kernel/seccomp_listener.h"
#include "common/policy/policy_proto.h"
#include "daemon/probe/destination.h"

namespace agentmon {
namespace {

constexpr int kRestart = 512;  // ERESTARTSYS: EINTR, or the call anew, as the signal's handler has it
constexpr uint64_t kMessagesMost = 1024;  // UIO_MAXIOV: sendmmsg(2) looks at no more
// IP_RETOPTS, IPV6_RTHDR, IPV6_2292RTHDR, IPV6_2292PKTINFO
constexpr int kRetOpts = 7, kRouting = 57, kOldRouting = 5, kOldInfo = 2;

int64_t OrErrno(ssize_t result) { return result < 0 ? -int64_t{errno} : result; }

// The handshake may have ended while the kernel was on its way back.
bool IsEstablished(int socket) {
  tcp_info info{};
  socklen_t size = sizeof(info);
  return getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 && info.tcpi_state == TCP_ESTABLISHED;
}

// Of an attempt that was told before.
bool IsNoAttempt(int error) { return error == EALREADY || error == EISCONN; }

// Control data that leads a packet elsewhere: by a route, or out by a device.
bool LeadsAway(const cmsghdr* part) {
  int device = 0;
  if (part->cmsg_level == IPPROTO_IP) {
    if (part->cmsg_type == kRetOpts) return true;
    if (part->cmsg_type != IP_PKTINFO || part->cmsg_len < CMSG_LEN(sizeof(in_pktinfo))) return false;
    std::memcpy(&device, CMSG_DATA(part) + offsetof(in_pktinfo, ipi_ifindex), sizeof(device));
  } else if (part->cmsg_level == IPPROTO_IPV6) {
    if (part->cmsg_type == kRouting || part->cmsg_type == kOldRouting) return true;
    const bool info = part->cmsg_type == IPV6_PKTINFO || part->cmsg_type == kOldInfo;
    if (!info || part->cmsg_len < CMSG_LEN(sizeof(in6_pktinfo))) return false;
    std::memcpy(&device, CMSG_DATA(part) + offsetof(in6_pktinfo, ipi6_ifindex), sizeof(device));
  }
  return device != 0;
}

}  // namespace

SocketWork::SocketWork(const SocketCall& call, const seccomp_notif& request,
                       std::shared_ptr<const Listener> listener, const CallerIdentity& caller,
                       CallerSocket socket)
    : call_(call),
      request_(request),
      listener_(std::move(listener)),
      caller_(caller),
      socket_(std::move(socket)),
      tid_(static_cast<pid_t>(request.pid)) {}

int SocketWork::Flags() const {
  switch (call_.act) {
    case SocketAct::kConnect:
      return 0;
    case SocketAct::kSendMessage:
      return static_cast<int>(request_.data.args[2]);
    case SocketAct::kSendTo:
    case SocketAct::kSendMessages:
      return static_cast<int>(request_.data.args[3]);
  }
  return 0;
}

bool SocketWork::MayWait() const { return (Flags() & MSG_DONTWAIT) == 0 && socket_.blocking(); }

int SocketWork::Interrupted() const {
  timeval timeout{};
  socklen_t size = sizeof(timeout);
  getsockopt(socket_.fd.get(), SOL_SOCKET, SO_SNDTIMEO, &timeout, &size);
  return timeout.tv_sec == 0 && timeout.tv_usec == 0 ? kRestart : EINTR;
}

int64_t SocketWork::Run(bool may_block) {
  switch (call_.act) {
    case SocketAct::kConnect:
      return Connect();
    case SocketAct::kSendTo:
    case SocketAct::kSendMessage:
      return Send(may_block);
    case SocketAct::kSendMessages:
      return SendMany(may_block);
  }
  return -EINVAL;
}

int64_t SocketWork::Connect() {
  if (!prepared_) {
    const auto& args = request_.data.args;
    int error = ReadSocketName(tid_, args[1], static_cast<int>(args[2]), &message_);
    if (error == 0) error = Judge(true);
    if (error != 0) return -error;
    prepared_ = true;
  }
  const auto* name = reinterpret_cast<const sockaddr*>(message_.name.data());
  return OrErrno(connect(socket_.fd.get(), name, static_cast<socklen_t>(message_.name.size())));
}

int SocketWork::ReadNext() {
  message_ = SocketMessage();
  directory_.Reset();
  passed_.clear();
  const bool stream = socket_.stream();
  int error = 0;
  if (call_.act == SocketAct::kSendTo) {
    error = ReadSendTo(call_, request_, stream, &message_);
  } else {
    const MessageLayout layout = MessageLayoutOf(request_.data);
    error = ReadMessageAt(tid_, layout, request_.data.args[1] + sent_ * layout.stride, stream, &message_);
    if (error == ENOTSUP) return CannotCarry("control data of a 32-bit program");
  }
  // Else what was read may be another process's.
  if (error == 0 && !NotifyIdValid(listener_->fd.get(), request_.id)) error = EINTR;
  return error;
}

int64_t SocketWork::Send(bool may_block) {
  if (!prepared_) {
    int error = ReadNext();
    if (error == 0) error = Judge(false);
    if (error != 0) return -error;
    prepared_ = true;
  }
  return SendOne(may_block);
}

// What was sent counts; why the next was not, the next call tells.
int64_t SocketWork::SendMany(bool may_block) {
  const MessageLayout layout = MessageLayoutOf(request_.data);
  const uint64_t wanted = std::min<uint64_t>(static_cast<uint32_t>(request_.data.args[2]), kMessagesMost);
  while (sent_ < wanted) {
    int64_t result = Send(may_block);
    if (result == -EAGAIN && !may_block && MayWait()) return result;
    const uint64_t at = request_.data.args[1] + sent_ * layout.stride + layout.length_offset;
    const auto length = static_cast<uint32_t>(std::max<int64_t>(result, 0));
    if (result >= 0 && !WriteCallerBytes(tid_, at, &length, sizeof(length))) result = -EFAULT;
    if (result < 0 && sent_ == 0) return result;
    if (result < 0) break;
    Tell(result);
    prepared_ = false;
    ++sent_;
  }
  event_ = Event();
  return static_cast<int64_t>(sent_);
}

int64_t SocketWork::SendOne(bool may_block) {
  iovec payload{message_.payload.data(), message_.payload.size()};
  msghdr head{};
  head.msg_iov = &payload;
  head.msg_iovlen = 1;
  if (message_.has_name) {
    head.msg_name = message_.name.data();
    head.msg_namelen = static_cast<socklen_t>(message_.name.size());
  }
  if (!message_.control.empty()) {
    head.msg_control = message_.control.data();
    head.msg_controllen = message_.control.size();
  }
  const int flags = Flags();
  const int64_t result =
      OrErrno(sendmsg(socket_.fd.get(), &head, flags | MSG_NOSIGNAL | (may_block ? 0 : MSG_DONTWAIT)));
  // The signal is the caller's.
  if (result == -EPIPE && (flags & MSG_NOSIGNAL) == 0 && socket_.stream() &&
      NotifyIdValid(listener_->fd.get(), request_.id))
    syscall(SYS_tgkill, caller_.tgid, tid_, SIGPIPE);
  return result;
}

int SocketWork::Judge(bool connects) {
  event_ = Event();
  if ((Flags() & MSG_ZEROCOPY) != 0) return CannotCarry("MSG_ZEROCOPY");
  if (!socket_.inet()) return JudgeOther();
  if (const int error = TakeControl(); error != 0) return error;
  if (!message_.has_name) return 0;  // where it is connected to was judged then
  const bool begins = connects || (socket_.stream() && (Flags() & MSG_FASTOPEN) != 0);
  if (socket_.stream() && !begins) {  // names nobody
    message_.has_name = false;
    return 0;
  }
  const Destination to = DestinationOf(socket_, begins, message_.name);
  if (to.kind == Destination::Kind::kInvalid) return to.error;
  if (to.kind == Destination::Kind::kNowhere) {
    // As the kernel takes it, and would not on a socket that is made an IPv4 one meanwhile (IPV6_ADDRFORM).
    if (call_.act != SocketAct::kConnect) message_.has_name = false;
    return 0;
  }
  // Where what is asked there leads is told by the proxy.
  if (listener_->gate->IsProxy(to.address, to.port, to.protocol)) return 0;
  Event event = DescribeDestination(socket_, to, begins ? v1::CONNECT : v1::SEND);
  Gate::Answer answer = listener_->gate->Network(
      begins ? policy::NetworkOp::kConnect : policy::NetworkOp::kSend, to.address, to.port, to.protocol);
  if (answer.stop) return Deny(std::move(event), std::move(answer.judgement));
  *event.mutable_judgement() = std::move(answer.judgement);
  if (event.judgement().decision() == v1::DECISION_UNSPECIFIED)
    event.mutable_judgement()->set_decision(v1::ALLOW);
  event_ = std::move(event);
  return 0;
}

int SocketWork::Deny(Event event, v1::Judgement judgement) {
  judgement.set_enforced(true);
  judgement.set_mechanism("seccomp");
  judgement.set_error(EPERM);
  *event.mutable_judgement() = std::move(judgement);
  if (event.has_net()) {
    event.mutable_net()->set_result(v1::Net::FAILED);
    event.mutable_net()->set_error(EPERM);
  }
  events_.push_back(std::move(event));
  return EPERM;
}

int SocketWork::CannotCarry(const char* what) {
  Event event;
  event.set_kind(v1::CALL);
  event.mutable_call()->set_name(call_.name);
  for (const auto argument : request_.data.args) event.mutable_call()->add_args(argument);
  event.mutable_call()->set_arch(request_.data.arch);
  return Deny(std::move(event),
              policy::BuiltinDenial("calls that cannot be made in the session's place",
                                    absl::StrCat(what, " cannot be carried over by who judges the call")));
}

// Descriptors are the caller's numbers.
int SocketWork::TakeControl() {
  msghdr head{};
  head.msg_control = message_.control.data();
  head.msg_controllen = message_.control.size();
  for (cmsghdr* part = CMSG_FIRSTHDR(&head); part != nullptr; part = CMSG_NXTHDR(&head, part)) {
    const auto at = static_cast<size_t>(reinterpret_cast<const char*>(part) - message_.control.data());
    if (part->cmsg_len < sizeof(cmsghdr) || part->cmsg_len > message_.control.size() - at) return EINVAL;
    if (LeadsAway(part)) return CannotCarry("a route or device of the message's own");
    if (part->cmsg_level != SOL_SOCKET) continue;
    if (part->cmsg_type == SCM_CREDENTIALS) return CannotCarry("SCM_CREDENTIALS");
    if (part->cmsg_type != SCM_RIGHTS) continue;
    unsigned char* data = CMSG_DATA(part);
    const size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int number;
      std::memcpy(&number, data + i * sizeof(int), sizeof(int));
      CallerSocket taken = TakeSocket(tid_, caller_.tgid, number);
      if (!taken.fd.valid()) return taken.error;
      number = taken.fd.get();
      std::memcpy(data + i * sizeof(int), &number, sizeof(int));
      passed_.push_back(std::move(taken.fd));
    }
  }
  return 0;
}

// Of no inet socket, which no network rule is about: made in the caller's place only because another thread
// could put an inet socket there.
int SocketWork::JudgeOther() {
  if (const int error = TakeControl(); error != 0) return error;
  return socket_.domain == AF_UNIX && message_.has_name ? NameInCallersView() : 0;
}

int SocketWork::NameInCallersView() {
  constexpr size_t kPath = offsetof(sockaddr_un, sun_path);
  if (message_.name.size() <= kPath || message_.name.size() > sizeof(sockaddr_un)) return 0;
  sockaddr_un name{};
  std::memcpy(&name, message_.name.data(), message_.name.size());
  if (name.sun_family != AF_UNIX) return 0;
  // Landlock would keep the caller inside of the session, and does not keep us.
  if (name.sun_path[0] == '\0') return CannotCarry("an abstract name, in a process of several threads,");
  const std::string path(name.sun_path, strnlen(name.sun_path, message_.name.size() - kPath));
  if (absl::StrContains(path, "/proc/")) return CannotCarry("a name in /proc");
  if (path[0] == '/') return 0;
  directory_.Reset(open(absl::StrCat("/proc/", tid_, "/cwd").c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!directory_.valid()) return errno;
  const std::string there = absl::StrCat("/proc/self/fd/", directory_.get(), "/", path);
  if (there.size() >= sizeof(name.sun_path)) return CannotCarry("so long a name");
  message_.name.assign(reinterpret_cast<const char*>(&name), kPath);
  message_.name.append(there.c_str(), there.size() + 1);
  return 0;
}

void SocketWork::Tell(int64_t result) {
  const int error = result < 0 ? static_cast<int>(-result) : 0;
  if (event_.kind() == v1::EVENT_KIND_UNSPECIFIED || IsNoAttempt(error)) return;
  v1::Net* net = event_.mutable_net();
  const bool goes_on = error == EINPROGRESS || error == kRestart || error == EINTR;
  if (goes_on && !IsEstablished(socket_.fd.get())) {
    net->set_result(v1::Net::IN_PROGRESS);
  } else if (goes_on || error == 0) {
    net->set_result(v1::Net::OK);
  } else {
    net->set_result(v1::Net::FAILED);
    net->set_error(error);
  }
  // How the others end is not told any more, unless the program calls again.
  if (error != EINPROGRESS || net->result() == v1::Net::OK) net->set_flow(socket_.cookie());
  events_.push_back(std::move(event_));
  event_ = Event();
}

std::vector<Event> SocketWork::TakeEvents(int64_t result) {
  Tell(result);
  return std::move(events_);
}

}  // namespace agentmon
