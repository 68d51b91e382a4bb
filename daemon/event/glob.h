// Path patterns, on bytes: `*` within a segment, `**` across segments, `?` one byte, `[a-z]` `[!a-z]`,
// `{a,b}`, backslash quotes. `X/**` also matches X itself, `**/X` also X at the top.
#pragma once

#include <bitset>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace agentmon {

// Immutable and thread-safe. Matching takes at most pattern x path steps, whatever the pattern.
class Glob {
 public:
  // InvalidArgument: an open bracket or brace, a trailing backslash, more than 4096 bytes, or braces
  // that stand for more than 256 patterns.
  static absl::StatusOr<Glob> Compile(absl::string_view pattern);

  bool Matches(absl::string_view path) const;

 private:
  struct Token {
    // kSplit goes on at the next token and at `jump` without taking a byte; kTree takes anything up to
    // and including a slash.
    enum Type : uint8_t { kByte, kAny, kSet, kStar, kDoubleStar, kTree, kSplit } type;
    uint8_t byte = 0;
    uint16_t index = 0;  // kSet: in sets_; kSplit: how many tokens to jump
  };
  using Program = std::vector<Token>;
  using ByteSet = std::bitset<256>;

  absl::Status AddAlternative(absl::string_view pattern);
  absl::StatusOr<size_t> AddSet(absl::string_view pattern, size_t at, Program* program);
  static size_t AddStars(absl::string_view pattern, size_t at, Program* program);
  bool Run(const Program& program, absl::string_view path) const;
  void Enter(const Program& program, size_t state, std::vector<uint8_t>* states) const;

  std::vector<Program> alternatives_;
  std::vector<ByteSet> sets_;
};

}  // namespace agentmon
