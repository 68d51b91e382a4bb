#include <vector>

#include "absl/strings/match.h"
#include "common/policy/glob.h"

namespace agentmon::policy {
namespace {

using Type = GlobToken::Type;

// A glob as a row of symbols: single characters and wildcards. `outer` reads the symbols of `inner` as a
// text.
struct Symbol {
  Type type;
  char literal = 0;
  const GlobToken* token = nullptr;
};

std::vector<Symbol> Symbols(const Glob& glob) {
  std::vector<Symbol> out;
  for (const GlobToken& token : glob.tokens()) {
    if (token.type == Type::kLiteral) {
      for (const char c : token.literal) out.push_back({Type::kLiteral, c, nullptr});
    } else {
      out.push_back({token.type, 0, &token});
    }
  }
  return out;
}

class Coverage {
 public:
  Coverage(std::vector<Symbol> outer, std::vector<Symbol> inner, char separator)
      : a_(std::move(outer)),
        b_(std::move(inner)),
        separator_(separator),
        memo_((a_.size() + 1) * (b_.size() + 1), kUnknown) {}

  bool Run(size_t i, size_t j) {
    char& known = memo_[i * (b_.size() + 1) + j];
    if (known == kUnknown) {
      known = kNo;  // no cycles: every step moves i or j on
      known = Compute(i, j) ? kYes : kNo;
    }
    return known == kYes;
  }

 private:
  static constexpr char kUnknown = 0, kNo = 1, kYes = 2;

  bool Slash(size_t j) const { return j < b_.size() && b_[j].type == Type::kLiteral && b_[j].literal == '/'; }
  bool InSegment(const Symbol& s) const {
    return (s.type == Type::kLiteral && s.literal != separator_) || s.type == Type::kAnyChar ||
           s.type == Type::kSet || s.type == Type::kStar;
  }

  bool Compute(size_t i, size_t j) {
    if (i == a_.size()) return j == b_.size();
    const Symbol& a = a_[i];
    switch (a.type) {
      case Type::kDoubleStar:
        return Run(i + 1, j) || (j < b_.size() && Run(i, j + 1));
      case Type::kSubtree:
        return j == b_.size() || Slash(j) || b_[j].type == Type::kSubtree || b_[j].type == Type::kDirs;
      case Type::kDirs:
        return Dirs(i, j);
      case Type::kStar:
        return Run(i + 1, j) || (j < b_.size() && InSegment(b_[j]) && Run(i, j + 1));
      default:
        return Single(a, i, j);
    }
  }

  // "/**/" of outer: one slash now, then any whole segments of inner.
  bool Dirs(size_t i, size_t j) {
    if (j == b_.size()) return false;
    if (b_[j].type == Type::kDirs && Run(i + 1, j + 1)) return true;
    if (!Slash(j) && b_[j].type != Type::kDirs) return false;
    if (Slash(j) && Run(i + 1, j + 1)) return true;
    for (size_t k = j + 1; k < b_.size(); ++k) {
      if (b_[k].type == Type::kDirs && Run(i + 1, k + 1)) return true;
      if (Slash(k) && Run(i + 1, k + 1)) return true;
      if (b_[k].type == Type::kSubtree || b_[k].type == Type::kDoubleStar) return false;
    }
    return false;
  }

  bool Single(const Symbol& a, size_t i, size_t j) {
    if (j == b_.size()) return false;
    const Symbol& b = b_[j];
    if (a.type == Type::kLiteral) {
      return b.type == Type::kLiteral && a.literal == b.literal && Run(i + 1, j + 1);
    }
    const bool one =
        (b.type == Type::kLiteral && b.literal != separator_ && static_cast<uint8_t>(b.literal) < 0x80) ||
        b.type == Type::kAnyChar || b.type == Type::kSet;
    if (!one) return false;
    if (a.type == Type::kAnyChar) return Run(i + 1, j + 1);
    if (b.type == Type::kSet) return *a.token == *b.token && Run(i + 1, j + 1);
    if (b.type != Type::kLiteral) return false;
    const auto code = static_cast<uint8_t>(b.literal);
    bool in = false;
    for (const auto& [low, high] : a.token->ranges) in |= low <= code && code <= high;
    return in != a.token->negated && Run(i + 1, j + 1);
  }

  const std::vector<Symbol> a_, b_;
  const char separator_;
  std::vector<char> memo_;
};

}  // namespace

bool GlobCovers(const Glob& outer, const Glob& inner) {
  if (outer.kind() != inner.kind()) return false;
  const char separator = outer.kind() == GlobKind::kPath     ? '/'
                         : outer.kind() == GlobKind::kDomain ? '.'
                                                             : '\0';
  return Coverage(Symbols(outer), Symbols(inner), separator).Run(0, 0);
}

}  // namespace agentmon::policy
