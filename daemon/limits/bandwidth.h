// The network rate of a session: BPF programs on the packets of its cgroup, which hold without a daemon and
// go with the cgroup. Not counted are the loopback device and sockets that were made outside of the session.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace agentmon {

// Whether this kernel takes the programs; tried once. Any thread.
absl::Status CanLimitBandwidth();

// `directory`: of the session's cgroup. Megabit (10^6 bits) a second, of what is sent and of what is received
// each; 0 lifts it. Changes what an earlier daemon set, in one step. One thread for each directory.
absl::Status SetBandwidth(const std::string& directory, int64_t mbps);

// Packets that were dropped to hold the rate since it was set; 0 where it is not set or the directory is
// gone.
uint64_t PacketsHeldBack(const std::string& directory);

}  // namespace agentmon
