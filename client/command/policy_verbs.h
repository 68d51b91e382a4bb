// The command line of agentmon policy.
#pragma once

#include "client/command/cli.h"

namespace agentmon {

void AddPolicy(CLI::App& app, Cli& cli);
// Options that verbs elsewhere share with it.
void AddPolicyOption(CLI::App* verb, std::vector<std::string>& policies);
void AddSetPolicyOptions(CLI::App* verb, Cli& cli);

}  // namespace agentmon
