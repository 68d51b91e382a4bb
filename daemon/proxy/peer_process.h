// Which process of a session has a socket.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/kernel/proc_fs.h"

namespace agentmon {

// Looks through the descriptors of these processes (/proc/PID/fd) for "socket:[inode]"; 0 = none of them has
// it, or it cannot be seen. A look at some hundred processes takes milliseconds.
pid_t FindSocketOwner(const std::vector<pid_t>& processes, uint32_t inode, const ProcFs& proc = ProcFs());

}  // namespace agentmon
