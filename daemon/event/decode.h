// Kernel records to events.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "daemon/event/event.h"

namespace agentmon {

// What a program of the kernel did about an act of the network, as am_sock has it.
struct KernelVerdict {
  uint8_t verdict = 0;  // AM_VERDICT_*
  uint8_t layer = 0;
  uint32_t policy = 0;
  uint32_t rule = 0;
};

struct Decoded {
  Event event;             // without session, seq, and what only the process tree knows
  uint64_t cgroup_id = 0;  // the session's cgroup, or AM_WATCHED | number of a watched tree
  uint32_t tid = 0;        // the thread that acted; process.pid is 0 where only it is known
  KernelVerdict verdict;   // who judges the event makes a judgement of it
};

// InvalidArgument for what is no record of bpf/event_abi.h; any bytes are safe. Bytes after the
// record's own size are ignored. `boot_to_wall_ns` is Unix time minus CLOCK_BOOTTIME.
absl::StatusOr<Decoded> Decode(absl::Span<const uint8_t> record, int64_t boot_to_wall_ns);

// A path of a record with these flags, as AM_F_REVERSED and AM_F_PATH_CUT say.
std::string RecordPath(absl::string_view bytes, uint32_t flags);

}  // namespace agentmon
