#include "daemon/proxy/stream.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>

namespace agentmon {
namespace {

constexpr size_t kPiece = 64 * 1024;

}  // namespace

bool Stream::Read() {
  if (ended_) return true;
  const size_t before = in.size();
  in.resize(before + kPiece);
  const ssize_t n = ::recv(fd_.get(), in.data() + before, kPiece, MSG_DONTWAIT);
  in.resize(before + static_cast<size_t>(n > 0 ? n : 0));
  if (n < 0) return errno == EAGAIN || errno == EINTR;
  ended_ = n == 0;
  return true;
}

bool Stream::Flush() {
  while (!out_.empty()) {
    const ssize_t n = ::send(fd_.get(), out_.data(), out_.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno == EAGAIN;
    out_.erase(0, static_cast<size_t>(n));
  }
  if (finish_ && !finished_) {
    finished_ = true;
    ::shutdown(fd_.get(), SHUT_WR);
  }
  return true;
}

// Nothing is watched where nothing is wanted: the end of both directions would be told again and again.
bool Stream::Watch(bool wants_input) {
  const uint32_t events = (wants_input && !ended_ ? EPOLLIN : 0u) | (out_.empty() ? 0u : EPOLLOUT);
  if (events == watched_) return true;
  watched_ = events;
  if (events == 0) {
    loop_.Unwatch(fd_.get());
    return true;
  }
  return loop_.Watch(fd_.get(), events, on_ready_).ok();
}

}  // namespace agentmon
