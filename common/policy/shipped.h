// The policies of packaging/policies, built in: a host on which no file is left still has a policy.
#pragma once

#include <vector>

#include "absl/strings/string_view.h"

namespace agentmon::policy {

struct ShippedPolicy {
  absl::string_view name;  // "default"
  absl::string_view path;  // as it is called in messages: "built-in/default.yaml"
  absl::string_view text;
};
const std::vector<ShippedPolicy>& ShippedPolicies();
// Null when there is none of this name.
const ShippedPolicy* FindShipped(absl::string_view name);

}  // namespace agentmon::policy
