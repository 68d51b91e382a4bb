// agentmon run, and session start: starts an agent in a new session and is as good as invisible while it
// runs.
#pragma once

#include <string>
#include <vector>

#include "client/command/verb.h"
#include "client/policy/network_options.h"

namespace agentmon {

struct RunOptions {
  std::string name;
  std::string workspace;
  std::vector<std::string> labels;
  std::vector<std::string> policies;  // names or files; the first is the base
  policy_cli::NetworkOptions network;
  std::vector<int> keep_fds;  // that reach the agent whatever they lead to
  bool allow_root = false;
  bool exec = false;
  bool quiet = false;
};

// Returns 125 for every failure of ours, else does what the agent did: exits with its status or dies by its
// signal.
int Run(const VerbContext& context, const RunOptions& options);

}  // namespace agentmon
