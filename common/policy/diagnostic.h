// What is wrong with a policy file, where, and what was probably meant.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace agentmon::policy {

// Line and column from 1; 0 = not known (built-in rules, rules made from flags).
struct Position {
  uint32_t line = 0;
  uint32_t column = 0;
};

enum class Severity : uint8_t { kNote, kWarning, kError };

struct Diagnostic {
  Severity severity = Severity::kError;
  std::string file;
  Position at;
  std::string text;  // the offending text, as written
  std::string message;
  std::string suggestion;  // what was probably meant; may be empty
};
using Diagnostics = std::vector<Diagnostic>;

// "FILE:3:7: error: unknown key "decison" (did you mean "decision"?)"
std::string FormatDiagnostic(const Diagnostic& d);
bool HasErrors(const Diagnostics& diagnostics);
absl::string_view SeverityName(Severity severity);

// Text made safe for one line of a terminal: control and non-ASCII-printable bytes as \xNN, cut at 120 bytes.
std::string Printable(absl::string_view text);

// The candidate with the smallest edit distance, when it is near enough to have been meant; else "".
std::string Nearest(absl::string_view word, absl::Span<const absl::string_view> candidates);

}  // namespace agentmon::policy
