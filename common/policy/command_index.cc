#include "common/policy/command_index.h"

#include <re2/re2.h>
#include <re2/set.h>

#include <algorithm>

namespace agentmon::policy {
namespace {

bool Found(const re2::RE2& expression, absl::string_view text) {
  return re2::RE2::PartialMatch(re2::StringPiece(text.data(), text.size()), expression);
}

bool NameMatches(const CommandRule& rule, const std::string& name) {
  return std::any_of(rule.names.begin(), rule.names.end(), [&](const Glob& g) { return g.Matches(name); });
}

constexpr int64_t kTogetherMemory = 8 << 20;

// The texts that an expression is searched in.
struct Texts {
  explicit Texts(const CommandView& command) : joined(command.joined), canonical(command.canonical) {
    const size_t first = command.argv.empty() ? 0 : std::min(command.argv[0].size() + 1, joined.size());
    arguments = joined.substr(first);
  }
  absl::string_view joined, arguments, canonical;
};

// Conditions on a rule besides program and expressions.
bool PlainConditions(const CommandRule& rule, const CommandView& command) {
  if (command.depth < rule.min_depth || (rule.max_depth >= 0 && command.depth > rule.max_depth)) return false;
  const auto arguments = command.argv.empty() ? command.argv : command.argv.subspan(1);
  return std::all_of(rule.args.begin(), rule.args.end(), [&](const std::string& arg) {
    return std::find(arguments.begin(), arguments.end(), arg) != arguments.end();
  });
}

}  // namespace

struct CommandIndex::Expressions {
  static constexpr size_t kFewest = 4;  // fewer are searched for one by one
  re2::RE2::Set set;
  std::vector<uint32_t> rule_of;  // expression of the set -> rule
  bool anchored = false;

  explicit Expressions(const re2::RE2::Options& options) : set(options, re2::RE2::UNANCHORED) {}

  // Marks the rules with an expression that is found; false: the set ran out of memory.
  bool Search(absl::string_view text, std::vector<uint32_t>& rules) const {
    std::vector<int> found;
    re2::RE2::Set::ErrorInfo error{re2::RE2::Set::kNoError};
    if (!set.Match(re2::StringPiece(text.data(), text.size()), &found, &error))
      return error.kind == re2::RE2::Set::kNoError;
    for (const int i : found) rules.push_back(rule_of[i]);
    return true;
  }
};

CommandIndex::CommandIndex() : paths_(true) {}
CommandIndex::CommandIndex(CommandIndex&&) noexcept = default;
CommandIndex::~CommandIndex() = default;

void CommandIndex::Add(CommandRule rule) {
  const auto index = static_cast<uint32_t>(rules_.size());
  if (rule.any) any_.push_back(index);
  for (const Glob& glob : rule.names) {
    if (glob.IsLiteral())
      by_name_[std::string(glob.literal())].rules.push_back(index);
    else
      by_glob_.push_back(index);
  }
  for (const Glob& glob : rule.paths) paths_.Add(glob, index, 1);
  rules_.push_back(std::move(rule));
}

void CommandIndex::Seal() {
  for (auto& [name, list] : by_name_) {
    size_t expressions = 0;
    for (const uint32_t index : list.rules) expressions += rules_[index].expressions.size();
    if (expressions < Expressions::kFewest) continue;
    std::unique_ptr<Expressions> together;
    bool good = true;
    for (const uint32_t index : list.rules) {
      for (const auto& expression : rules_[index].expressions) {
        if (!together) {
          re2::RE2::Options options(expression->options());
          options.set_max_mem(kTogetherMemory);
          together = std::make_unique<Expressions>(options);
        }
        good = good && together->set.Add(expression->pattern(), nullptr) >= 0;
        together->rule_of.push_back(index);
      }
      if (together) together->anchored = together->anchored || rules_[index].anchored;
    }
    if (good && together->set.Compile()) list.together = std::move(together);
  }
}

bool CommandIndex::ExpressionsMatch(const CommandRule& rule, const CommandView& command) {
  if (rule.expressions.empty()) return true;
  const Texts texts(command);
  for (const auto& expression : rule.expressions) {
    if ((command.honest || !rule.allows) && Found(*expression, texts.joined)) return true;
    if (rule.anchored && Found(*expression, texts.arguments)) return true;
    if (!texts.canonical.empty() && Found(*expression, texts.canonical)) return true;
  }
  return false;
}

bool CommandIndex::ArgumentsMatch(const CommandRule& rule, const CommandView& command) {
  return PlainConditions(rule, command) && ExpressionsMatch(rule, command);
}

bool CommandIndex::ProgramMatches(const CommandRule& rule, const CommandView& command) {
  bool program = rule.any;
  for (const std::string& name : command.names) program = program || NameMatches(rule, name);
  for (const std::string& name : command.other_names)
    program = program || (rule.anywhere && NameMatches(rule, name));
  for (const absl::string_view path : command.paths) {
    program = program || std::any_of(rule.paths.begin(), rule.paths.end(),
                                     [&](const Glob& g) { return g.Matches(path); });
  }
  return program;
}

bool CommandIndex::Matches(const CommandRule& rule, const CommandView& command) {
  return ProgramMatches(rule, command) && ArgumentsMatch(rule, command);
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

bool CommandIndex::TryTogether(const List& list, const CommandView& command, uint32_t& best) const {
  if (list.together == nullptr) return false;
  const Texts texts(command);
  std::vector<uint32_t> joined, arguments, canonical;
  const Expressions& all = *list.together;
  if (!all.Search(texts.joined, joined)) return false;
  if (all.anchored && !all.Search(texts.arguments, arguments)) return false;
  if (!texts.canonical.empty() && !all.Search(texts.canonical, canonical)) return false;
  const auto in = [](const std::vector<uint32_t>& rules, uint32_t r) {
    return std::find(rules.begin(), rules.end(), r) != rules.end();
  };
  for (const uint32_t index : list.rules) {
    if (index >= best) return true;
    const CommandRule& rule = rules_[index];
    const bool found = rule.expressions.empty() || ((command.honest || !rule.allows) && in(joined, index)) ||
                       (rule.anchored && in(arguments, index)) || in(canonical, index);
    if (found && ProgramMatches(rule, command) && PlainConditions(rule, command)) {
      best = index;
      return true;
    }
  }
  return true;
}

uint32_t CommandIndex::Find(const CommandView& command) const {
  uint32_t best = kNone;
  if (rules_.empty()) return best;
  for (const auto* names : {&command.names, &command.other_names}) {
    for (const std::string& name : *names) {
      const auto found = by_name_.find(name);
      if (found != by_name_.end() && !TryTogether(found->second, command, best))
        Try(found->second.rules, command, best);
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
