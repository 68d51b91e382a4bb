// What a session has used and which limits it has hit, read from its directory's control files.
#pragma once

#include <cstdint>

#include "agentmon/v1/event.pb.h"
#include "common/kernel/cgroup_files.h"

namespace agentmon {

// Counters of the kernel since the directory was made; 0 where the file is not there.
struct LimitHits {
  uint64_t memory = 0;         // times that memory reached its limit
  uint64_t memory_killed = 0;  // processes that the kernel ended for want of memory
  uint64_t swap = 0;
  uint64_t pids = 0;       // forks that failed
  uint64_t throttled = 0;  // periods in which processors were taken away
  uint64_t held_back = 0;  // packets that were dropped; not of a control file (bandwidth.h)
};

LimitHits ReadLimitHits(const CgroupFiles& files);
v1::Usage ReadUsage(const CgroupFiles& files);
// What only grows keeps its larger value: the directory may be gone by the time of the later reading.
LimitHits Later(const LimitHits& before, const LimitHits& now);
v1::Usage Later(const v1::Usage& before, v1::Usage now);
uint64_t ReadCpuNs(const CgroupFiles& files);

}  // namespace agentmon
