// Names and arguments are bytes that somebody else chose: nothing of them reaches a terminal before it went
// through here. Control bytes, escape sequences, bytes that are no UTF-8 and characters that reorder the
// line are shown as escapes.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace agentmon {

bool IsUtf8(absl::string_view bytes);
// Bytes that are no UTF-8 become U+FFFD.
std::string ToUtf8(absl::string_view bytes);

// "a\nb" -> a\nb in one line; no quotes are added and backslashes stay as they are.
std::string Printable(absl::string_view bytes);

// JSON text in which \u escapes stand for DEL and all that Printable would escape beyond ASCII; a parser
// reads the same. Well-formed UTF-8 only.
std::string EscapedJson(absl::string_view json);

// A word that a POSIX shell (bash, where $'..' is needed) reads back as these bytes.
std::string ShellQuote(absl::string_view bytes);
std::string ShellQuoteAll(const std::vector<std::string>& words);

// Columns on a terminal. The text must be printable already.
int DisplayWidth(absl::string_view text);
// At most `columns` wide; what was cut is shown by a last "…".
std::string CutToWidth(absl::string_view text, int columns);
// The same from its beginning: "…end".
std::string CutHead(absl::string_view text, int columns);
std::string PadRight(absl::string_view text, int columns);
std::string PadLeft(absl::string_view text, int columns);

}  // namespace agentmon
