#include "daemon/proxy/connector.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace agentmon {
namespace {

int Begin(int fd, const policy::Address& address, uint16_t port) {
  const int on = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  int result;
  if (address.v6) {
    sockaddr_in6 to{};
    to.sin6_family = AF_INET6;
    to.sin6_port = htons(port);
    std::memcpy(&to.sin6_addr, address.bytes.data(), 16);
    result = ::connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof(to));
  } else {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    std::memcpy(&to.sin_addr, address.bytes.data(), 4);
    result = ::connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof(to));
  }
  return result == 0 ? 0 : errno;
}

}  // namespace

void Connector::Forget() {
  if (timer_) loop_.Cancel(*timer_);
  timer_.reset();
  if (fd_.valid()) loop_.Unwatch(fd_.get());
}

void Connector::TryNext() {
  const policy::Address& address = addresses_[next_];
  fd_ = UniqueFd(::socket(address.v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd_.valid()) return Settle(errno);
  const int error = Begin(fd_.get(), address, port_);
  if (error != EINPROGRESS) return Settle(error);
  const bool last = next_ + 1 == addresses_.size();
  timer_ = loop_.After(last ? kPatience : kImpatience, [this] {
    timer_.reset();
    Settle(ETIMEDOUT);
  });
  if (!loop_.Watch(fd_.get(), EPOLLOUT, [this](uint32_t) { OnReady(); }).ok()) Settle(ENOMEM);
}

void Connector::OnReady() {
  int error = 0;
  socklen_t size = sizeof(error);
  if (::getsockopt(fd_.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
  Settle(error);
}

// The last call may be the end of this object.
void Connector::Settle(int error) {
  Forget();
  on_tried_(next_, error);
  if (error != 0 && ++next_ < addresses_.size()) return TryNext();
  const Done done = std::move(done_);
  done(error == 0 ? std::move(fd_) : UniqueFd(), error);
}

}  // namespace agentmon
