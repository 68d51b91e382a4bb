// System call numbers of every architecture that the filter covers -> what they do.
#pragma once

#include <cstdint>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "common/kernel/mediated_calls.h"
#include "common/kernel/socket_calls.h"

namespace agentmon {

class CallTable {
 public:
  CallTable();
  // arch: AUDIT_ARCH_*; number: with the x32 bit where it is set. nullptr when it is not mediated.
  const MediatedCall* Find(uint32_t arch, int number) const;
  // The same for calls that name a socket.
  const SocketCall* FindSocket(uint32_t arch, int number) const;

 private:
  absl::flat_hash_map<std::pair<uint32_t, int>, const MediatedCall*> calls_;
  absl::flat_hash_map<std::pair<uint32_t, int>, const SocketCall*> socket_calls_;
};

}  // namespace agentmon
