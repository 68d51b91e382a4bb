#include "common/policy/diagnostic.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace agentmon::policy {
namespace {

size_t EditDistance(absl::string_view a, absl::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t change = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({change, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

}  // namespace

absl::string_view SeverityName(Severity severity) {
  switch (severity) {
    case Severity::kNote:
      return "note";
    case Severity::kWarning:
      return "warning";
    case Severity::kError:
      return "error";
  }
  return "error";
}

std::string FormatDiagnostic(const Diagnostic& d) {
  std::string out = d.file;
  if (d.at.line != 0) absl::StrAppend(&out, ":", d.at.line, ":", d.at.column);
  absl::StrAppend(&out, ": ", SeverityName(d.severity), ": ", d.message);
  if (!d.text.empty()) absl::StrAppend(&out, ": \"", Printable(d.text), "\"");
  if (!d.suggestion.empty()) absl::StrAppend(&out, " (", d.suggestion, ")");
  return out;
}

bool HasErrors(const Diagnostics& diagnostics) {
  return std::any_of(diagnostics.begin(), diagnostics.end(),
                     [](const Diagnostic& d) { return d.severity == Severity::kError; });
}

std::string Printable(absl::string_view text) {
  constexpr size_t kLongest = 120;
  std::string out;
  for (const char c : text.substr(0, kLongest)) {
    if (absl::ascii_isprint(static_cast<unsigned char>(c))) {
      out.push_back(c);
    } else {
      absl::StrAppendFormat(&out, "\\x%02x", static_cast<unsigned char>(c));
    }
  }
  if (text.size() > kLongest) out += "...";
  return out;
}

std::string Nearest(absl::string_view word, absl::Span<const absl::string_view> candidates) {
  if (word.size() > 64) return "";
  const std::string lower = absl::AsciiStrToLower(word);
  size_t best = std::max<size_t>(word.size() < 4 ? 1 : 2, word.size() / 3) + 1;
  absl::string_view found;
  for (const absl::string_view candidate : candidates) {
    const size_t distance = EditDistance(lower, candidate);
    if (distance < best) {
      best = distance;
      found = candidate;
    }
  }
  return std::string(found);
}

}  // namespace agentmon::policy
