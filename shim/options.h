// agentmon-shim's command line.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace agentmon {

struct ShimOptions {
  std::string socket;
  int token_fd = -1;
  std::string
      namespace_error;  // why agentmon-ns could not make a mount namespace; empty = it did, or was not asked
  std::vector<int> keep_fds;  // that reach the agent whatever they are
  char** command = nullptr;   // within argv, ended by nullptr; at least one word
};

// agentmon-shim [--ns-error=TEXT] --socket PATH --token-fd N [--keep-fd N]... -- CMD ARGS...
absl::StatusOr<ShimOptions> ParseShimOptions(int argc, char** argv);

// Are the descriptors that are to be kept there? Before any of ours are opened.
absl::Status CheckKeptDescriptors(const ShimOptions& options);

}  // namespace agentmon
