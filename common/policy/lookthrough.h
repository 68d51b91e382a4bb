// Commands inside commands: what `env nice -n 10 sh -c '...'` will run.
#pragma once

#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/policy/shell_words.h"

namespace agentmon::policy {

// Programs whose arguments are looked through. A layer may add names, and remove built-in ones for itself and
// the layers below it.
class TransparentSet {
 public:
  TransparentSet();  // the built-in names
  void Add(absl::string_view name) { names_.insert(std::string(name)); }
  void Remove(absl::string_view name) { names_.erase(name); }
  bool Contains(absl::string_view name) const { return names_.contains(name); }
  bool operator==(const TransparentSet&) const = default;

 private:
  absl::flat_hash_set<std::string> names_;
};

struct DerivedCommand {
  Words argv;
  std::string via;  // "env > sh -c"
};

// program: the name of the resolved binary. All commands that argv leads to, the nearest first, to depth 5
// and at most 64 of them. Pure; never fails: what it cannot read it leaves out.
std::vector<DerivedCommand> LookThrough(absl::string_view program, absl::Span<const absl::string_view> argv,
                                        const TransparentSet& transparent);

// "/usr/bin/git.real" -> "git"
absl::string_view ProgramName(absl::string_view path);

}  // namespace agentmon::policy
