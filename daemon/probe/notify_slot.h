// Where a thread that serves seccomp listeners keeps the request that it has taken and not yet answered.
// Lies in memory shared with the holder, which answers in the place of a daemon that died meanwhile.
#pragma once

#include <linux/seccomp.h>

#include <atomic>
#include <cstdint>

namespace agentmon {

struct alignas(64) NotifySlot {
  std::atomic<uint64_t> cgroup_id;  // whose listener is being read; 0 = none
  seccomp_notif request;            // the kernel writes it when the request is taken; id 0 = nothing taken
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);

inline constexpr int kNotifySlots = 128;

}  // namespace agentmon
