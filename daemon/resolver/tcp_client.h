// One connection of a program that asks over TCP: messages with their length before them (RFC 7766).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "common/base/unique_fd.h"
#include "daemon/resolver/poll_loop.h"

namespace agentmon {

using DnsReply = std::function<void(const std::vector<uint8_t>& message)>;

// The loop's thread. Ends by itself: at the peer's end, after `patience` without a whole message or without
// progress of an answer, and when a message is longer than a question may be.
class TcpClient : public std::enable_shared_from_this<TcpClient> {
 public:
  using OnMessage = std::function<void(absl::Span<const uint8_t> message, const DnsReply& reply)>;
  static constexpr int kOpenQuestions = 16;  // then nothing is read until one is answered
  static constexpr absl::Duration kPatience = absl::Seconds(10);

  TcpClient(PollLoop& loop, UniqueFd fd, OnMessage on_message, std::function<void()> on_end)
      : loop_(loop), fd_(std::move(fd)), on_message_(std::move(on_message)), on_end_(std::move(on_end)) {}
  ~TcpClient();
  // False: it cannot be watched.
  bool Start();

 private:
  void OnReady(uint32_t events);
  bool Read();
  bool Write();
  void TakeMessages();
  void Send(const std::vector<uint8_t>& message);
  void Watch();
  void Wait();
  void End();

  PollLoop& loop_;
  const UniqueFd fd_;
  const OnMessage on_message_;
  std::function<void()> on_end_;
  std::vector<uint8_t> in_, out_;
  int open_ = 0;
  bool peer_done_ = false, ended_ = false;
  std::optional<PollLoop::Timer> timer_;
};

}  // namespace agentmon
