// Stage: gives up every capability but those of a list.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace agentmon {

// A bit per capability.
using CapabilitySet = uint64_t;

// "CAP_CHOWN", ...; InvalidArgument names what is none.
absl::StatusOr<CapabilitySet> ParseCapabilities(const std::vector<std::string>& names);

// Ambient and inheritable sets are emptied, permitted and effective ones cut down to `keep`. The bounding set
// is cut down too, but only CAP_SETPCAP may do that: an ordinary user keeps it, and no_new_privs makes that
// moot. Of the calling thread, for ever.
absl::Status DropCapabilities(CapabilitySet keep);

}  // namespace agentmon
