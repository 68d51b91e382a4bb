// What threads that serve seccomp listeners show to the holder, in memory that both have: the requests that
// they have taken and not yet answered, so that the holder can answer in the place of a daemon that died or
// hangs.
#pragma once

#include <linux/seccomp.h>

#include <atomic>
#include <cstdint>

namespace agentmon {

struct alignas(64) NotifySlot {
  std::atomic<uint64_t> cgroup_id;  // whose listener is being read; 0 = none
  seccomp_notif request;            // the kernel writes it when the request is taken; id 0 = nothing taken
};

// How often a thread went to take a request: what does not grow while a request waits is not served.
struct alignas(64) NotifyTurns {
  std::atomic<uint64_t> turns;
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);

inline constexpr int kNotifySlots = 128;  // one for each thread
inline constexpr int kNotifyTurns = 256;  // cgroups share them: a hang of one may then be seen late

struct NotifyShared {
  NotifySlot slots[kNotifySlots];
  NotifyTurns turns[kNotifyTurns];
  // The highest descriptor that an event of a fanotify group has ever come with.
  std::atomic<uint32_t> highest_event_fd;

  std::atomic<uint64_t>& TurnsOf(uint64_t cgroup_id) { return turns[cgroup_id % kNotifyTurns].turns; }
};

}  // namespace agentmon
