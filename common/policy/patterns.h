// The texts of rules as compiled patterns; the loader uses the same functions to check them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/policy/address.h"
#include "common/policy/glob.h"
#include "common/policy/rule.h"

namespace re2 {
class RE2;
}

namespace agentmon::policy {

// Paths of file and unix rules: absolute, or starting with **; unix also @name and *.
bool ParsePathPattern(absl::string_view text, RuleKind kind, std::vector<Glob>& out, GlobError& error);

// A token of command_rules: is_path when it has a slash; names are folded to lower case.
bool ParseCommandToken(absl::string_view text, bool& is_path, std::vector<Glob>& out, GlobError& error);

struct DomainPattern {
  bool any = false;  // "**": every destination, named or not
  std::vector<Glob> names;
  std::vector<Prefix> addresses;  // an address written as a domain; loopback for localhost
};
bool ParseDomainPattern(absl::string_view text, DomainPattern& out, GlobError& error);

// Bytes, not characters: an argument that is not UTF-8 must not hide from a rule. `.` matches newlines.
std::shared_ptr<const re2::RE2> CompileExpression(absl::string_view text, std::string& error);

}  // namespace agentmon::policy
