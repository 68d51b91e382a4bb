// Joins the attempt of a TCP connection with how it ended, so that one event tells both.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>

#include "absl/container/flat_hash_map.h"
#include "daemon/event/event.h"

namespace agentmon {

// Core thread. An attempt waits up to a second for its result; after that it is given out as IN_PROGRESS,
// and the result, when it comes, as an event of its own with the same flow.
class FlowJoiner {
 public:
  using Out = std::function<void(Event)>;
  explicit FlowJoiner(Out out) : out_(std::move(out)) {}

  // Takes CONNECT events: attempts, and results (OK or FAILED). Others go straight out.
  void OnEvent(Event event);
  // Gives out what has waited long enough.
  void Flush(int64_t now_boot_ns);
  // Gives out all that waits of one session, and forgets it.
  void EndSession(const std::string& session);
  void EndAll();
  bool idle() const { return waiting_ == 0; }

 private:
  struct Flow {
    Event attempt;
    bool given_out;
  };
  void GiveOutAll(const std::function<bool(const Event&)>& of);
  void Forget(uint64_t flow);

  Out out_;
  absl::flat_hash_map<uint64_t, Flow> flows_;
  std::deque<uint64_t> order_;  // oldest first; may name flows that are gone
  size_t waiting_ = 0;
};

}  // namespace agentmon
