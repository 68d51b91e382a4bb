// A source of events.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "daemon/event/record.h"

namespace agentmon {

struct ProbeStats {
  uint64_t records = 0;  // handed over
  uint64_t lost = 0;     // known to be lost, at least
};

// Core thread, all of it. A probe that needs a thread of its own owns it and crosses back by Post.
class Probe {
 public:
  virtual ~Probe() = default;
  virtual absl::string_view name() const = 0;
  // Starts; records come until destruction. An error leaves nothing attached and says why in one line.
  virtual absl::Status Attach(RecordSink& sink) = 0;
  virtual ProbeStats Stats() const = 0;
};

}  // namespace agentmon
