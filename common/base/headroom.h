// Whether the system will give this process what a library takes without asking. gRPC waits for ever where it
// gets no threads, and aborts where it gets no descriptors; asked beforehand, the reason can be told.
#pragma once

#include <cstddef>

#include "absl/status/status.h"

namespace agentmon {

struct Headroom {
  int descriptors = 0;
  int threads = 0;
  size_t memory_bytes = 0;  // of address space, besides the threads' stacks
};

// For a program's start: threads share one heap. Else each may take 64 MiB of address space for one of its
// own, and how much there must be for all of them depends on who comes first.
void KeepOneHeap();

// Takes it all for a moment and gives it back; some 0.1 ms. ResourceExhausted says what is short and which
// limit to raise. Others may take it right afterwards.
absl::Status CheckHeadroom(const Headroom& wanted);

// What a gRPC client needs (1.51: five descriptors, six threads), and that with more for who calls it.
inline constexpr Headroom kGrpcClient{6, 7, size_t{12} << 20};
inline constexpr Headroom kGrpcClientAndMore{14, 10, size_t{24} << 20};

}  // namespace agentmon
