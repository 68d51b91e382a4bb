// The commands that a shell script names, as far as they can be told without running it.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace agentmon::policy {

using Words = std::vector<std::string>;

struct ScriptLimits {
  size_t bytes = 64 << 10;
  size_t commands = 64;
  int depth = 5;
};

// Simple commands in order: those of lists, pipelines, substitutions and compound commands. Assignments,
// redirections, comments and here-documents are dropped; expansions stay as they are written ("$HOME").
// A guess that errs towards too many commands; what it misses is judged when it is executed.
std::vector<Words> SplitScript(absl::string_view script, const ScriptLimits& limits = ScriptLimits());

}  // namespace agentmon::policy
