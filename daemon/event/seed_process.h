// A process that was there before its fork could be recorded.
#pragma once

#include <cstdint>
#include <string>

#include "daemon/event/process_key.h"

namespace agentmon {

struct SeedProcess {
  ProcessKey key;
  ProcessKey parent;       // its parent now
  uint64_t cgroup_id = 0;  // of its session
  uint32_t uid = 0;
  std::string exe;  // empty when /proc did not tell
};

}  // namespace agentmon
