// agentmon debug: what mechanisms are told of a policy.
#pragma once

#include <string>
#include <vector>

#include "client/command/verb.h"

namespace agentmon {

struct DebugOptions {
  std::string session;
  std::vector<std::string> policies;
};

int DebugNetworkPlan(const VerbContext& context, const DebugOptions& options, bool apply);

}  // namespace agentmon
