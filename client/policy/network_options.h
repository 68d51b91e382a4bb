// --allow-net, --deny-net and --deny-all of `agentmon run`, as one more layer of the session's policy.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "agentmon/v1/policy.pb.h"

namespace agentmon::policy_cli {

struct NetworkOptions {
  std::vector<std::string> allow, deny;  // NAME, ADDRESS or PREFIX, each with or without :PORT or :PORT-PORT
  bool deny_all = false;                 // but for what is allowed
  bool any() const { return deny_all || !allow.empty() || !deny.empty(); }
};

// What is denied comes first, then what is allowed; where something is allowed the rest is denied. A layer
// only tightens: what the session's policy denies stays denied. The error names the option.
absl::StatusOr<v1::PolicyDocument> NetworkLayer(const NetworkOptions& options);

}  // namespace agentmon::policy_cli
