// Globs on paths, domains and plain words.
//
//   *      within a segment (paths: between slashes, domains: one label); ** across segments
//   ?      one character, [abc] [a-z] [!a] one of a set, never the separator; {a,b} alternatives; \ quotes
//   X/**   covers X itself; /a/**/b matches /a/b; **/x matches x in every directory (paths only)
//
// Matching takes at most (pattern x text) steps. Bytes that are not UTF-8 count as one character each.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace agentmon::policy {

enum class GlobKind : uint8_t { kPath, kDomain, kWord };  // kWord: no separator, * matches everything

struct GlobToken {
  // kDirs: "/" and any number of whole segments ("/**/"); kSubtree: the end, or "/" and everything ("/**").
  enum class Type : uint8_t { kLiteral, kAnyChar, kSet, kStar, kDoubleStar, kDirs, kSubtree };
  Type type = Type::kLiteral;
  bool negated = false;
  std::string literal;
  std::vector<std::pair<uint32_t, uint32_t>> ranges;  // of a kSet: code points
  bool operator==(const GlobToken&) const = default;
};

struct GlobError {
  std::string message;
  size_t offset = 0;  // into the pattern
};

class Glob {
 public:
  // A pattern with alternatives is several globs. False and error when the pattern is broken.
  static bool Parse(absl::string_view pattern, GlobKind kind, std::vector<Glob>& out, GlobError& error);

  bool Matches(absl::string_view text) const;
  GlobKind kind() const { return kind_; }
  const std::vector<GlobToken>& tokens() const { return tokens_; }
  // No wildcard: then literal() is the only text that matches.
  bool IsLiteral() const;
  absl::string_view literal() const;
  // For tests and messages: the tokens as a pattern again.
  std::string ToString() const;
  // The same glob with its leading literal text replaced; from must be a prefix of it.
  Glob WithPrefix(absl::string_view from, absl::string_view to) const;

 private:
  friend class GlobParser;
  GlobKind kind_ = GlobKind::kPath;
  std::vector<GlobToken> tokens_;
};

// Quotes what is special in a glob, so that the text matches itself only.
std::string EscapeGlob(absl::string_view text);

// True when every text that `inner` matches is matched by `outer`. May say false where it is true.
bool GlobCovers(const Glob& outer, const Glob& inner);

// A text that the glob matches: wildcards filled with "x". For lint and tests.
std::string GlobSample(const Glob& glob);

// How many patterns {a,b} makes of this one, at least 1; malformed text counts too. Cheap: nothing is
// expanded.
size_t CountAlternatives(absl::string_view pattern);

// /a//b/./c/../d/ -> /a/b/d. Lexical: callers hand over resolved paths, this repairs spellings only.
// Returns path itself when there is nothing to do; else storage, filled.
absl::string_view NormalizePath(absl::string_view path, std::string& storage);

}  // namespace agentmon::policy
