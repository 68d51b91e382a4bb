// A process for as long as the host is up.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <utility>

#include "agentmon/v1/event.pb.h"

namespace agentmon {

struct ProcessKey {
  pid_t pid = 0;          // thread-group id
  uint64_t start_ns = 0;  // CLOCK_BOOTTIME of its birth; 0 = not known

  static ProcessKey From(const v1::ProcessKey& key) { return {key.pid(), key.start_ns()}; }
  void To(v1::ProcessKey* key) const {
    key->set_pid(pid);
    key->set_start_ns(start_ns);
  }

  friend bool operator==(const ProcessKey& a, const ProcessKey& b) {
    return a.pid == b.pid && a.start_ns == b.start_ns;
  }
  template <typename H>
  friend H AbslHashValue(H state, const ProcessKey& key) {
    return H::combine(std::move(state), key.pid, key.start_ns);
  }
};

}  // namespace agentmon
