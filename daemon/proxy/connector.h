// Connects to the first of some addresses that answers.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "common/base/unique_fd.h"
#include "common/policy/address.h"
#include "daemon/resolver/poll_loop.h"

namespace agentmon {

// The loop's thread. Ends without a word when it is destroyed.
class Connector {
 public:
  static constexpr absl::Duration kPatience = absl::Seconds(20);   // with the last address
  static constexpr absl::Duration kImpatience = absl::Seconds(5);  // with those before

  // error: errno, 0 = connected. Told for each address that was tried, before `done`.
  using OnTried = std::function<void(size_t index, int error)>;
  // The socket, or the last address's error.
  using Done = std::function<void(UniqueFd fd, int error)>;

  Connector(PollLoop& loop, std::vector<policy::Address> addresses, uint16_t port, OnTried on_tried,
            Done done)
      : loop_(loop),
        addresses_(std::move(addresses)),
        port_(port),
        on_tried_(std::move(on_tried)),
        done_(std::move(done)) {}
  ~Connector() { Forget(); }
  // May complete at once.
  void Start() { TryNext(); }

 private:
  void TryNext();
  void OnReady();
  void Settle(int error);
  void Forget();

  PollLoop& loop_;
  const std::vector<policy::Address> addresses_;
  const uint16_t port_;
  const OnTried on_tried_;
  Done done_;
  size_t next_ = 0;
  UniqueFd fd_;
  std::optional<PollLoop::Timer> timer_;
};

}  // namespace agentmon
