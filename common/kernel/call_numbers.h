// Numbers of system calls on the architectures that a session's programs may be of: this machine's own and
// its 32-bit ones. What is not here is killed by the session's filter.
#pragma once

#include <cstdint>

#include "absl/types/span.h"

namespace agentmon {

struct CallArch {
  uint32_t audit;       // as seccomp_data carries it: AUDIT_ARCH_*
  uint32_t libseccomp;  // as libseccomp names it: SCMP_ARCH_*
};

// x32 has the architecture of x86-64, and bit 30 in its numbers.
absl::Span<const CallArch> CallArchs();

inline constexpr uint32_t kX32Bit = 0x40000000;

// Negative when this architecture has no such call.
int CallNumber(const CallArch& arch, const char* name);

}  // namespace agentmon
