#include "daemon/resolver/tcp_client.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "daemon/resolver/dns_message.h"

namespace agentmon {

TcpClient::~TcpClient() {
  loop_.Unwatch(fd_.get());
  if (timer_) loop_.Cancel(*timer_);
}

bool TcpClient::Start() {
  Wait();
  return loop_.Watch(fd_.get(), EPOLLIN, [this](uint32_t events) { OnReady(events); }).ok();
}

void TcpClient::Wait() {
  if (timer_) loop_.Cancel(*timer_);
  timer_ = loop_.After(kPatience, [self = weak_from_this()] {
    if (const auto client = self.lock()) {
      client->timer_.reset();
      client->End();
    }
  });
}

// on_end gives this object up.
void TcpClient::End() {
  if (ended_) return;
  ended_ = true;
  loop_.Unwatch(fd_.get());
  ::shutdown(fd_.get(), SHUT_RDWR);
  const std::function<void()> on_end = std::move(on_end_);
  on_end();
}

void TcpClient::Watch() {
  if (ended_) return;
  const uint32_t events =
      (peer_done_ || open_ >= kOpenQuestions ? 0u : EPOLLIN) | (out_.empty() ? 0u : EPOLLOUT);
  if (!loop_.Watch(fd_.get(), events, [this](uint32_t ready) { OnReady(ready); }).ok()) End();
}

void TcpClient::OnReady(uint32_t events) {
  const std::shared_ptr<TcpClient> self = shared_from_this();
  if ((events & EPOLLERR) != 0 || ((events & EPOLLHUP) != 0 && (events & EPOLLIN) == 0)) return End();
  if ((events & EPOLLOUT) != 0 && !Write()) return End();
  if ((events & EPOLLIN) != 0 && !Read()) return End();
  TakeMessages();
  if (peer_done_ && open_ == 0 && out_.empty()) return End();
  Watch();
}

// At most one message more than what is there already.
bool TcpClient::Read() {
  uint8_t buffer[kMostQueryBytes + 2];
  const ssize_t n = ::recv(fd_.get(), buffer, sizeof(buffer), MSG_DONTWAIT);
  if (n < 0) return errno == EAGAIN || errno == EINTR;
  if (n == 0) peer_done_ = true;
  in_.insert(in_.end(), buffer, buffer + n);
  return true;
}

void TcpClient::TakeMessages() {
  size_t at = 0;
  while (!ended_ && open_ < kOpenQuestions && in_.size() - at >= 2) {
    const size_t size = static_cast<size_t>(in_[at]) << 8 | in_[at + 1];
    if (size > kMostQueryBytes) return End();
    if (in_.size() - at - 2 < size) break;
    const std::vector<uint8_t> message(in_.begin() + static_cast<ptrdiff_t>(at) + 2,
                                       in_.begin() + static_cast<ptrdiff_t>(at + 2 + size));
    at += 2 + size;
    ++open_;
    Wait();
    on_message_(message, [self = weak_from_this()](const std::vector<uint8_t>& answer) {
      if (const auto client = self.lock()) client->Send(answer);
    });
  }
  in_.erase(in_.begin(), in_.begin() + static_cast<ptrdiff_t>(at));
}

// Empty: there is no answer to this message.
void TcpClient::Send(const std::vector<uint8_t>& message) {
  if (ended_) return;
  --open_;
  if (message.empty() || message.size() > UINT16_MAX) return End();
  out_.push_back(static_cast<uint8_t>(message.size() >> 8));
  out_.push_back(static_cast<uint8_t>(message.size()));
  out_.insert(out_.end(), message.begin(), message.end());
  Wait();
  Watch();  // what was read before waits for this too: the socket is writable at once
}

bool TcpClient::Write() {
  const ssize_t n = ::send(fd_.get(), out_.data(), out_.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (n < 0) return errno == EAGAIN || errno == EINTR;
  out_.erase(out_.begin(), out_.begin() + n);
  if (n > 0) Wait();
  return true;
}

}  // namespace agentmon
