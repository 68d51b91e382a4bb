// Environment variables that carry secrets, or code that programs run at their start.
#pragma once

#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace agentmon::policy {

bool IsSecretEnvName(absl::string_view name);
// Our own variables, by exact name: they always reach the agent.
bool IsOwnEnvName(absl::string_view name);

// The same as globs and names.
const std::vector<absl::string_view>& SecretEnvPatterns();
absl::Span<const absl::string_view> OwnEnvNames();

}  // namespace agentmon::policy
