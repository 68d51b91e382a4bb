#include "common/policy/command_index.h"

#include <re2/re2.h>

#include <algorithm>

namespace agentmon::policy {
namespace {

bool Found(const re2::RE2& expression, absl::string_view text) {
  return re2::RE2::PartialMatch(re2::StringPiece(text.data(), text.size()), expression);
}

bool NameMatches(const CommandRule& rule, const std::string& name) {
  return std::any_of(rule.names.begin(), rule.names.end(), [&](const Glob& g) { return g.Matches(name); });
}

}  // namespace

void CommandIndex::Add(CommandRule rule) {
  const auto index = static_cast<uint32_t>(rules_.size());
  if (rule.any) any_.push_back(index);
  for (const Glob& glob : rule.names) {
    if (glob.IsLiteral()) by_name_[std::string(glob.literal())].push_back(index);
    else by_glob_.push_back(index);
  }
  for (const Glob& glob : rule.paths) paths_.Add(glob, index, 1);
  rules_.push_back(std::move(rule));
}

bool CommandIndex::ArgumentsMatch(const CommandRule& rule, const CommandView& command) {
  if (command.depth < rule.min_depth || (rule.max_depth >= 0 && command.depth > rule.max_depth)) return false;
  const auto arguments = command.argv.empty() ? command.argv : command.argv.subspan(1);
  for (const std::string& arg : rule.args) {
    if (std::find(arguments.begin(), arguments.end(), arg) == arguments.end()) return false;
  }
  if (rule.expressions.empty()) return true;
  const size_t first = command.argv.empty() ? 0 : std::min(command.argv[0].size() + 1, command.joined.size());
  for (const auto& expression : rule.expressions) {
    if ((command.honest || !rule.allows) && Found(*expression, command.joined)) return true;
    if (rule.anchored && Found(*expression, absl::string_view(command.joined).substr(first))) return true;
    if (!command.canonical.empty() && Found(*expression, command.canonical)) return true;
  }
  return false;
}

bool CommandIndex::Matches(const CommandRule& rule, const CommandView& command) {
  bool program = rule.any;
  for (const std::string& name : command.names) program = program || NameMatches(rule, name);
  for (const std::string& name : command.other_names) program = program || (rule.anywhere && NameMatches(rule, name));
  for (const absl::string_view path : command.paths) {
    program = program || std::any_of(rule.paths.begin(), rule.paths.end(), [&](const Glob& g) { return g.Matches(path); });
  }
  return program && ArgumentsMatch(rule, command);
}

void CommandIndex::Try(const std::vector<uint32_t>& list, const CommandView& command, uint32_t& best) const {
  for (const uint32_t index : list) {
    if (index >= best) return;
    if (Matches(rules_[index], command)) {
      best = index;
      return;
    }
  }
}

uint32_t CommandIndex::Find(const CommandView& command) const {
  uint32_t best = kNone;
  if (rules_.empty()) return best;
  for (const auto* names : {&command.names, &command.other_names}) {
    for (const std::string& name : *names) {
      if (const auto found = by_name_.find(name); found != by_name_.end()) Try(found->second, command, best);
    }
  }
  Try(by_glob_, command, best);
  if (!paths_.empty()) {
    std::vector<uint32_t> rules;
    for (const absl::string_view path : command.paths) paths_.Collect(PathKeys(path), rules);
    std::sort(rules.begin(), rules.end());
    Try(rules, command, best);
  }
  Try(any_, command, best);
  return best;
}

}  // namespace agentmon::policy
