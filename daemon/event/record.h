// What a probe hands to the pipeline: one record of bpf/event_abi.h.
#pragma once

#include <cstdint>

#include "absl/types/span.h"

namespace agentmon {

class RecordSink {
 public:
  virtual ~RecordSink() = default;
  // Core thread. The bytes are valid only during the call and may be malformed.
  virtual void OnRecord(absl::Span<const uint8_t> record) = 0;
};

}  // namespace agentmon
