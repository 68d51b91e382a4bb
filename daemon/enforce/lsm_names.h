// Patterns on whole names as the automaton that bpf/lsm_names.h runs.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "bpf/lsm_abi.h"
#include "common/policy/glob.h"

namespace agentmon {

struct LsmNamePattern {
  const policy::Glob* glob;  // of paths; not null
  am_lsm_match match;
};

// ResourceExhausted when they do not fit, or when a set ([...]) names characters beyond ASCII. Of bytes
// that are no UTF-8 "?" and sets take some otherwise than Glob does. Pure.
absl::StatusOr<std::unique_ptr<am_lsm_names>> MakeLsmNames(const std::vector<LsmNamePattern>& patterns);

}  // namespace agentmon
