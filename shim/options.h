// agentmon-shim's command line.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace agentmon {

struct ShimOptions {
  std::string socket;
  int token_fd = -1;
  std::string
      namespace_error;  // why agentmon-ns could not make a mount namespace; empty = it did, or was not asked
  char** command = nullptr;  // within argv, ended by nullptr; at least one word
};

// agentmon-shim [--ns-error=TEXT] --socket PATH --token-fd N -- CMD ARGS...
absl::StatusOr<ShimOptions> ParseShimOptions(int argc, char** argv);

}  // namespace agentmon
