// An act written as text, for tables and `policy explain`: verb and subject.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/policy/subject.h"
#include "common/policy/variables.h"

namespace agentmon::policy {

// Owns what its Subject borrows; not copied, so that the views stay good.
struct Act {
  Subject subject;
  std::string verb, text;
  bool env = false;  // an environment variable: text is its name
  std::vector<std::string> words;
  std::vector<absl::string_view> argv;
  std::string path, new_path, name;

  Act() = default;
  Act(const Act&) = delete;
};

// Verbs: exec, open, edit, the names of file operations, connect, query, unix, bind_unix, signal, env.
std::vector<absl::string_view> ActVerbs();
absl::StatusOr<std::unique_ptr<Act>> ParseAct(absl::string_view verb, absl::string_view text,
                                              const Variables& variables);

}  // namespace agentmon::policy
