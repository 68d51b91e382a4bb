// An AM_EVENT record of bpf/event_abi.h: an act that was judged where it was met.
#pragma once

#include <cstdint>
#include <vector>

#include "daemon/event/event.h"

namespace agentmon {

// Who, where and when of the act.
struct EventOrigin {
  v1::Source source = v1::SOURCE_UNSPECIFIED;
  int64_t boot_ns = 0;
  uint64_t cgroup_id = 0;
  uint32_t pid = 0;  // thread-group id
  uint32_t tid = 0;
  uint32_t uid = 0;
  uint64_t start_ns = 0;  // birth of the process, 0 = not known
  uint32_t flags = 0;     // AM_F_*
};

std::vector<uint8_t> EncodeEventRecord(const EventOrigin& origin, const Event& event);

}  // namespace agentmon
