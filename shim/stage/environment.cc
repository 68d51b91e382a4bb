#include "shim/stage/environment.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/policy/glob.h"

namespace agentmon {
namespace {

struct Rule {
  bool keeps = false;
  std::vector<policy::Glob> globs;
};

absl::StatusOr<Rule> ParseRule(absl::string_view line) {
  Rule rule;
  rule.keeps = absl::ConsumePrefix(&line, "!");
  policy::GlobError error;
  if (!policy::Glob::Parse(line, policy::GlobKind::kWord, rule.globs, error)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the environment's filter has a broken pattern ", line, ": ", error.message));
  }
  return rule;
}

absl::string_view NameOf(absl::string_view word) { return word.substr(0, word.find('=')); }

}  // namespace

struct EnvironmentFilter::Rules {
  std::vector<std::vector<Rule>> filters;
  int64_t max_bytes = 0, max_keys = 0;  // 0 = no bound
};

EnvironmentFilter::EnvironmentFilter(std::unique_ptr<Rules> rules) : rules_(std::move(rules)) {}
EnvironmentFilter::~EnvironmentFilter() = default;
EnvironmentFilter::EnvironmentFilter(EnvironmentFilter&&) noexcept = default;
EnvironmentFilter& EnvironmentFilter::operator=(EnvironmentFilter&&) noexcept = default;

absl::StatusOr<EnvironmentFilter> EnvironmentFilter::Parse(const std::vector<std::string>& lines) {
  auto rules = std::make_unique<Rules>();
  rules->filters.emplace_back();
  for (const std::string& line : lines) {
    absl::string_view rest = line;
    if (line.empty()) {
      rules->filters.emplace_back();
      continue;
    }
    const bool bytes = absl::ConsumePrefix(&rest, "=max_bytes=");
    if (bytes || absl::ConsumePrefix(&rest, "=max_keys=")) {
      if (absl::SimpleAtoi(rest, bytes ? &rules->max_bytes : &rules->max_keys)) continue;
      return absl::InvalidArgumentError(absl::StrCat("the environment's filter has a broken bound ", line));
    }
    auto rule = ParseRule(line);
    if (!rule.ok()) return rule.status();
    rules->filters.back().push_back(*std::move(rule));
  }
  return EnvironmentFilter(std::move(rules));
}

bool EnvironmentFilter::Keeps(absl::string_view name) const {
  return std::all_of(rules_->filters.begin(), rules_->filters.end(), [&](const std::vector<Rule>& filter) {
    for (const Rule& rule : filter) {
      const bool matches = std::any_of(rule.globs.begin(), rule.globs.end(),
                                       [&](const policy::Glob& glob) { return glob.Matches(name); });
      if (matches) return rule.keeps;
    }
    return true;
  });
}

absl::Status EnvironmentFilter::CheckSize(const std::vector<std::string>& environment) const {
  int64_t bytes = 0;
  for (const std::string& word : environment) bytes += static_cast<int64_t>(word.size()) + 1;
  const auto keys = static_cast<int64_t>(environment.size());
  const auto over = [](absl::string_view what, int64_t have, int64_t bound, absl::string_view key) {
    return absl::ResourceExhaustedError(absl::StrCat("the environment has ", have, " ", what,
                                                     ", and the policy allows ", bound, " (env_policy.", key,
                                                     "): unset some of it"));
  };
  if (rules_->max_bytes != 0 && bytes > rules_->max_bytes)
    return over("bytes", bytes, rules_->max_bytes, "max_bytes");
  if (rules_->max_keys != 0 && keys > rules_->max_keys)
    return over("variables", keys, rules_->max_keys, "max_keys");
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> MakeEnvironment(const std::vector<std::string>& inherited,
                                                         const EnvironmentFilter& filter,
                                                         const Variables& set) {
  std::vector<std::string> environment;
  for (const std::string& word : inherited) {
    const absl::string_view name = NameOf(word);
    const bool replaced =
        std::any_of(set.begin(), set.end(), [&](const auto& variable) { return variable.first == name; });
    if (!replaced && filter.Keeps(name)) environment.push_back(word);
  }
  for (size_t i = 0; i < set.size(); ++i) {
    const bool later = std::any_of(set.begin() + static_cast<ptrdiff_t>(i) + 1, set.end(),
                                   [&](const auto& variable) { return variable.first == set[i].first; });
    if (!later) environment.push_back(absl::StrCat(set[i].first, "=", set[i].second));
  }
  if (absl::Status fits = filter.CheckSize(environment); !fits.ok()) return fits;
  return environment;
}

}  // namespace agentmon
