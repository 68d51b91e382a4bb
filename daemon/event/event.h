// The event that travels through the daemon is the public message: what is stored, streamed and
// answered is the same object. Only Decode, attribution and policy look inside.
#pragma once

#include "agentmon/v1/event.pb.h"

namespace agentmon {

using Event = v1::Event;

class EventSink {
 public:
  virtual ~EventSink() = default;
  // Core thread. Never blocks, never fails; what it has to drop it counts.
  virtual void OnEvent(const Event& event) = 0;
};

}  // namespace agentmon
