// Which unix socket a waiting caller names.
#pragma once

#include <linux/seccomp.h>

#include <cstdint>
#include <string>

#include "common/kernel/socket_calls.h"

namespace agentmon {

struct UnixCall {
  // sun_path as the kernel takes it: a leading NUL and the rest of an abstract name, or a path.
  std::string name;
  uint32_t uses = 1;  // messages in a row that name it
  bool more = false;  // others follow, that name another one
  int fd = -1;        // of the caller
};

// Reads the caller's memory. False: no unix socket is named, or nothing that the kernel could read either.
bool ReadUnixCall(const SocketCall& call, const seccomp_notif& request, UnixCall* out);

}  // namespace agentmon
