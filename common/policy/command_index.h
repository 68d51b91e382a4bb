// Finds the first command rule that matches, without looking at every rule.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/policy/path_index.h"
#include "common/policy/patterns.h"

namespace agentmon::policy {

struct CommandRule {
  uint32_t rule = 0;  // index into the document's rules
  bool any = false;   // no commands given: every program
  std::vector<Glob> names, paths;
  bool anywhere = false;
  std::vector<std::shared_ptr<const re2::RE2>> expressions;
  bool anchored = false;  // an expression looks at the start: the arguments alone are searched too
  std::vector<std::string> args;
  int min_depth = 0, max_depth = -1;
  bool allows = false;  // allow or audit
};

// A started program as rules see it.
struct CommandView {
  std::vector<std::string> names;        // lower case; of programs in trusted directories
  std::vector<std::string> other_names;  // of programs elsewhere: only `anywhere` rules look at them
  std::vector<absl::string_view> paths;  // resolved binary, and the path as asked when it can be trusted
  absl::Span<const absl::string_view> argv;
  std::string joined;     // argv, by single spaces
  std::string canonical;  // the same with the program's real name first, when that differs
  bool honest = true;     // argv[0] is the program's name; else rules that allow do not search joined
  int depth = 0;
};

class CommandIndex {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;
  CommandIndex();
  CommandIndex(CommandIndex&&) noexcept;
  CommandIndex& operator=(CommandIndex&&) = delete;
  ~CommandIndex();
  void Add(CommandRule rule);                       // in order
  void Seal();                                      // after the last one
  uint32_t Find(const CommandView& command) const;  // an index into rules()
  // Every condition but the program's name and path; every condition.
  static bool ArgumentsMatch(const CommandRule& rule, const CommandView& command);
  static bool ExpressionsMatch(const CommandRule& rule, const CommandView& command);
  static bool ProgramMatches(const CommandRule& rule, const CommandView& command);
  static bool Matches(const CommandRule& rule, const CommandView& command);
  const std::vector<CommandRule>& rules() const { return rules_; }

 private:
  // Rules of one program. Many expressions are searched for together, in one pass over the arguments.
  struct Expressions;
  struct List {
    std::vector<uint32_t> rules;
    std::unique_ptr<const Expressions> together;
  };
  void Try(const std::vector<uint32_t>& list, const CommandView& command, uint32_t& best) const;
  bool TryTogether(const List& list, const CommandView& command, uint32_t& best) const;

  std::vector<CommandRule> rules_;
  absl::flat_hash_map<std::string, List> by_name_;
  std::vector<uint32_t> by_glob_, any_;
  PathIndex paths_;
};

}  // namespace agentmon::policy
