// Signals by name, number and group, and the relations of signal rules.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace agentmon::policy {

// "KILL", "SIGKILL", "9", "@fatal" -> bits (bit N = signal N, 1 to 64 as bit 0 for 64); 0 when unknown.
uint64_t ParseSignals(absl::string_view word);
uint64_t SignalBit(int number);  // 0 when there is no such signal
std::string SignalName(int number);

// "self" -> kTargetSelf; 0 when unknown.
uint32_t ParseSignalTarget(absl::string_view word);
std::string SignalTargetNames(uint32_t mask);

}  // namespace agentmon::policy
