// Stored events first, then live ones, each once. For the thread of one Tail call.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "daemon/event/event.h"
#include "daemon/stream/stream_hub.h"

namespace agentmon {

class Tail {
 public:
  // Gives stored events that match, the newest `backlog`, none with a number above until_seq, in order; the
  // store's query in the daemon. `give` says false to stop.
  using Give = std::function<bool(std::vector<Event> events)>;
  using Backlog = std::function<absl::Status(uint64_t until_seq, const Give& give)>;
  // Sends to the client; false = it is gone.
  using Send = std::function<bool(std::vector<Event> events, uint64_t gap)>;

  static constexpr size_t kChunk = 1000;
  static constexpr absl::Duration kCancelCheck = absl::Milliseconds(500);

  explicit Tail(std::unique_ptr<Subscriber> subscriber) : subscriber_(std::move(subscriber)) {}

  // Until the client is gone, `cancelled` says so, or the hub ends. The subscription was made before the
  // backlog is read and knows up to which number events were stored by then: the backlog ends there and
  // everything later is in the queue, so nothing is missing and nothing comes twice.
  absl::Status Run(const Backlog& backlog, const Send& send, const std::function<bool()>& cancelled);

 private:
  std::unique_ptr<Subscriber> subscriber_;
};

}  // namespace agentmon
