// Environment variables that carry secrets, or code that programs run at their start.
#pragma once

#include "absl/strings/string_view.h"

namespace agentmon::policy {

bool IsSecretEnvName(absl::string_view name);
// Our own variables, by exact name: they always reach the agent.
bool IsOwnEnvName(absl::string_view name);

}  // namespace agentmon::policy
