#include "client/output/text.h"

#include <wchar.h>

#include <algorithm>
#include <clocale>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace agentmon {
namespace {

struct Rune {
  uint32_t code = 0;
  size_t bytes = 1;
  bool valid = false;  // false: one byte that is not part of a well-formed character
};

// Well-formed as in the Unicode standard, table 3-7: no surrogates, nothing overlong.
Rune NextRune(absl::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<uint8_t>(text[i]) : uint8_t{0}; };
  const uint8_t first = byte(0);
  if (first < 0x80) return {first, 1, true};
  const size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4) return {first, 1, false};
  uint32_t code = first & (0xff >> (length + 1));
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {first, 1, false};
    code = code << 6 | (byte(i) & 0x3f);
  }
  const bool overlong = (length == 3 && code < 0x800) || (length == 4 && code < 0x10000);
  if (overlong || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return {first, 1, false};
  return {code, length, true};
}

// C0, C1, and what moves or reorders text: line separators, bidirectional controls, the byte order mark.
bool IsUnsafe(uint32_t code) {
  return code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x061c ||
         (code >= 0x200b && code <= 0x200f) || (code >= 0x2028 && code <= 0x202e) ||
         (code >= 0x2060 && code <= 0x206f) || code == 0xfeff || (code >= 0xe0000 && code <= 0xe007f);
}

void AppendEscaped(const Rune& rune, std::string* out) {
  switch (rune.code) {
    case '\n':
      out->append("\\n");
      return;
    case '\t':
      out->append("\\t");
      return;
    case '\r':
      out->append("\\r");
      return;
  }
  if (!rune.valid || rune.code < 0x80) {
    absl::StrAppendFormat(out, "\\x%02x", rune.code);
  } else if (rune.code > 0xffff) {
    absl::StrAppendFormat(out, "\\U%08x", rune.code);
  } else {
    absl::StrAppendFormat(out, "\\u%04x", rune.code);
  }
}

template <typename OnRune>
void ForEachRune(absl::string_view text, OnRune on_rune) {
  while (!text.empty()) {
    const Rune rune = NextRune(text);
    on_rune(rune, text.substr(0, rune.bytes));
    text.remove_prefix(rune.bytes);
  }
}

bool IsPlainWordByte(unsigned char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c >= 0x80 ||
         absl::string_view("@%+=:,./-_").find(static_cast<char>(c)) != absl::string_view::npos;
}

int RuneWidth(uint32_t code) {
  static const bool known = setlocale(LC_CTYPE, "C.UTF-8") != nullptr;
  if (code < 0x80 || !known) return 1;
  return std::max(0, wcwidth(static_cast<wchar_t>(code)));
}

}  // namespace

bool IsUtf8(absl::string_view bytes) {
  bool valid = true;
  ForEachRune(bytes, [&](const Rune& rune, absl::string_view) { valid = valid && rune.valid; });
  return valid;
}

std::string ToUtf8(absl::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  ForEachRune(bytes, [&](const Rune& rune, absl::string_view text) {
    absl::StrAppend(&out, rune.valid ? text : absl::string_view("\xef\xbf\xbd"));
  });
  return out;
}

std::string Printable(absl::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  ForEachRune(bytes, [&](const Rune& rune, absl::string_view text) {
    if (rune.valid && !IsUnsafe(rune.code)) {
      out.append(text.data(), text.size());
    } else {
      AppendEscaped(rune, &out);
    }
  });
  return out;
}

std::string EscapedJson(absl::string_view json) {
  std::string out;
  out.reserve(json.size());
  ForEachRune(json, [&](const Rune& rune, absl::string_view text) {
    if (rune.code < 0x7f || !IsUnsafe(rune.code)) {
      out.append(text.data(), text.size());
    } else if (rune.code > 0xffff) {  // as UTF-16 has it: two surrogates
      const uint32_t rest = rune.code - 0x10000;
      absl::StrAppendFormat(&out, "\\u%04x\\u%04x", 0xd800 + (rest >> 10), 0xdc00 + (rest & 0x3ff));
    } else {
      absl::StrAppendFormat(&out, "\\u%04x", rune.code);
    }
  });
  return out;
}

std::string ShellQuote(absl::string_view bytes) {
  if (bytes.empty()) return "''";
  bool plain = bytes[0] != '~', printable = true;
  ForEachRune(bytes, [&](const Rune& rune, absl::string_view text) {
    printable = printable && rune.valid && !IsUnsafe(rune.code);
    plain = plain && IsPlainWordByte(static_cast<unsigned char>(text[0]));
  });
  if (printable && plain) return std::string(bytes);
  std::string out = printable ? "'" : "$'";
  ForEachRune(bytes, [&](const Rune& rune, absl::string_view text) {
    if (!rune.valid || IsUnsafe(rune.code)) {
      AppendEscaped(rune, &out);
    } else if (rune.code == '\'') {
      out.append(printable ? "'\\''" : "\\'");
    } else if (rune.code == '\\' && !printable) {
      out.append("\\\\");
    } else {
      out.append(text.data(), text.size());
    }
  });
  return out + "'";
}

std::string ShellQuoteAll(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) absl::StrAppend(&out, out.empty() ? "" : " ", ShellQuote(word));
  return out;
}

int DisplayWidth(absl::string_view text) {
  int width = 0;
  ForEachRune(text, [&](const Rune& rune, absl::string_view) { width += RuneWidth(rune.code); });
  return width;
}

std::string CutToWidth(absl::string_view text, int columns) {
  if (columns <= 0) return "";
  if (DisplayWidth(text) <= columns) return std::string(text);
  int width = 0;
  size_t keep = 0;
  bool full = false;
  ForEachRune(text, [&](const Rune& rune, absl::string_view bytes) {
    full = full || width + RuneWidth(rune.code) > columns - 1;
    if (full) return;
    width += RuneWidth(rune.code);
    keep += bytes.size();
  });
  return absl::StrCat(text.substr(0, keep), "…");
}

std::string CutHead(absl::string_view text, int columns) {
  if (columns <= 0) return "";
  int width = DisplayWidth(text);
  if (width <= columns) return std::string(text);
  while (width > columns - 1) {
    const Rune rune = NextRune(text);
    width -= RuneWidth(rune.code);
    text.remove_prefix(rune.bytes);
  }
  return absl::StrCat("…", text);
}

std::string PadRight(absl::string_view text, int columns) {
  return absl::StrCat(text, std::string(std::max(0, columns - DisplayWidth(text)), ' '));
}

std::string PadLeft(absl::string_view text, int columns) {
  return absl::StrCat(std::string(std::max(0, columns - DisplayWidth(text)), ' '), text);
}

}  // namespace agentmon
