// Stage: the environment that the agent gets.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace agentmon {

// ShimPlan.unset_environment, as the proto describes it.
class EnvironmentFilter {
 public:
  // InvalidArgument names a pattern that is broken.
  static absl::StatusOr<EnvironmentFilter> Parse(const std::vector<std::string>& lines);
  ~EnvironmentFilter();
  EnvironmentFilter(EnvironmentFilter&&) noexcept;
  EnvironmentFilter& operator=(EnvironmentFilter&&) noexcept;

  bool Keeps(absl::string_view name) const;
  // ResourceExhausted when there is more than the policy allows.
  absl::Status CheckSize(const std::vector<std::string>& environment) const;

 private:
  struct Rules;
  explicit EnvironmentFilter(std::unique_ptr<Rules> rules);
  std::unique_ptr<Rules> rules_;
};

using Variables = std::vector<std::pair<std::string, std::string>>;

// "NAME=VALUE" words: those of `inherited` that the filter keeps, then `set`, of which the last of a name
// counts.
absl::StatusOr<std::vector<std::string>> MakeEnvironment(const std::vector<std::string>& inherited,
                                                         const EnvironmentFilter& filter,
                                                         const Variables& set);

}  // namespace agentmon
