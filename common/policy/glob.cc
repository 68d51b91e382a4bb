#include "common/policy/glob.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace agentmon::policy {
namespace {

using Type = GlobToken::Type;
constexpr absl::string_view kSpecial = "*?[]{}\\";

// The code point at text[i] and its length; a byte that does not start valid UTF-8 stands for itself.
uint32_t Decode(absl::string_view text, size_t i, size_t& length) {
  const auto byte = [&](size_t k) { return static_cast<uint8_t>(text[k]); };
  const uint8_t first = byte(i);
  length = 1;
  const size_t want = first >= 0xf0 && first < 0xf8 ? 4 : first >= 0xe0 ? 3 : first >= 0xc2 ? 2 : 1;
  if (first < 0xc2 || first >= 0xf8 || i + want > text.size()) return first;
  uint32_t code = first & (0x7f >> want);
  for (size_t k = 1; k < want; ++k) {
    if ((byte(i + k) & 0xc0) != 0x80) return first;
    code = code << 6 | (byte(i + k) & 0x3f);
  }
  length = want;
  return code;
}

char Separator(GlobKind kind) {
  return kind == GlobKind::kPath ? '/' : kind == GlobKind::kDomain ? '.' : '\0';
}

bool SetMatches(const GlobToken& token, uint32_t code) {
  const bool in = std::any_of(token.ranges.begin(), token.ranges.end(),
                              [&](const auto& r) { return r.first <= code && code <= r.second; });
  return in != token.negated;
}

// One walk over the text. Only the last star and the last double star can ever need another try: whatever a
// double star is given first, all that comes before it has matched with the shortest text, and that is
// enough.
class Matcher {
 public:
  Matcher(absl::Span<const GlobToken> tokens, absl::string_view text, char separator)
      : tokens_(tokens), text_(text), separator_(separator) {}

  bool Run() {
    for (;;) {
      if (done_) return true;
      if (t_ == tokens_.size() ? i_ == text_.size() : Step()) {
        if (t_ == tokens_.size() && i_ == text_.size()) return true;
        continue;
      }
      if (!Retry()) return false;
    }
  }

 private:
  bool Step() {
    const GlobToken& token = tokens_[t_];
    switch (token.type) {
      case Type::kLiteral:
        if (!absl::StartsWith(text_.substr(i_), token.literal)) return false;
        i_ += token.literal.size();
        break;
      case Type::kAnyChar:
      case Type::kSet: {
        if (i_ == text_.size() || text_[i_] == separator_) return false;
        size_t length;
        const uint32_t code = Decode(text_, i_, length);
        if (token.type == Type::kSet && !SetMatches(token, code)) return false;
        i_ += length;
        break;
      }
      case Type::kStar:
        star_ = t_;
        star_at_ = i_;
        break;
      case Type::kDoubleStar:
        if (t_ + 1 == tokens_.size()) return done_ = true;
        Deep(i_);
        break;
      case Type::kDirs:
        if (i_ == text_.size() || text_[i_] != '/') return false;
        Deep(++i_);
        break;
      case Type::kSubtree:
        return done_ = i_ == text_.size() || text_[i_] == '/';
    }
    ++t_;
    return true;
  }

  void Deep(size_t at) {
    deep_ = t_;
    deep_at_ = at;
    star_ = kNone;
  }

  bool Retry() {
    if (star_ != kNone && star_at_ < text_.size() && text_[star_at_] != separator_) {
      i_ = ++star_at_;
      t_ = star_ + 1;
      return true;
    }
    star_ = kNone;
    if (deep_ == kNone) return false;
    if (tokens_[deep_].type == Type::kDirs) {
      const size_t slash = text_.find('/', deep_at_);
      if (slash == absl::string_view::npos) return false;
      deep_at_ = slash;
    }
    if (deep_at_ >= text_.size()) return false;
    i_ = ++deep_at_;
    t_ = deep_ + 1;
    return true;
  }

  static constexpr size_t kNone = static_cast<size_t>(-1);
  absl::Span<const GlobToken> tokens_;
  absl::string_view text_;
  const char separator_;
  size_t t_ = 0, i_ = 0;
  size_t star_ = kNone, star_at_ = 0, deep_ = kNone, deep_at_ = 0;
  bool done_ = false;
};

constexpr size_t kMostAlternatives = 256;

// Position after the closing character of a set or an alternative, or npos.
size_t SkipSet(absl::string_view p, size_t i) {
  size_t k = i + 1;
  if (k < p.size() && (p[k] == '!' || p[k] == '^')) ++k;
  if (k < p.size() && p[k] == ']') ++k;
  for (; k < p.size(); ++k) {
    if (p[k] == '\\')
      ++k;
    else if (p[k] == ']')
      return k + 1;
  }
  return absl::string_view::npos;
}

}  // namespace

class GlobParser {
 public:
  GlobParser(GlobKind kind, GlobError& error) : kind_(kind), error_(error) {}

  // Writes out the alternatives: a{b,c{d,e}} -> ab acd ace.
  bool Alternatives(absl::string_view p, size_t base, std::vector<std::string>& out) {
    size_t open = absl::string_view::npos;
    for (size_t i = 0; i < p.size(); ++i) {
      if (p[i] == '\\') {
        if (++i == p.size()) return Fail("a backslash at the end quotes nothing", base + i - 1);
      } else if (p[i] == '[') {
        const size_t end = SkipSet(p, i);
        if (end == absl::string_view::npos) return Fail("[ without ]", base + i);
        i = end - 1;
      } else if (p[i] == '{') {
        open = i;
        break;
      } else if (p[i] == '}') {
        return Fail("} without {", base + i);
      }
    }
    if (open == absl::string_view::npos) {
      if (out.size() >= kMostAlternatives) return Fail("more than 256 alternatives", base);
      out.emplace_back(p);
      return true;
    }
    std::vector<absl::string_view> parts;
    size_t close = open;
    if (!Parts(p, open, base, parts, close)) return false;
    for (const absl::string_view part : parts) {
      if (!Alternatives(absl::StrCat(p.substr(0, open), part, p.substr(close + 1)), base, out)) return false;
    }
    return true;
  }

  bool Glob_(absl::string_view pattern, Glob& glob) {
    glob_ = &glob;
    glob.kind_ = kind_;
    return kind_ == GlobKind::kPath ? Path(pattern) : Segment(pattern, 0);
  }

  bool Fail(absl::string_view message, size_t offset) {
    error_ = {std::string(message), offset};
    return false;
  }

 private:
  bool Parts(absl::string_view p, size_t open, size_t base, std::vector<absl::string_view>& parts,
             size_t& close) {
    int depth = 0;
    size_t from = open + 1;
    for (size_t i = open; i < p.size(); ++i) {
      if (p[i] == '\\') {
        ++i;
      } else if (p[i] == '[') {
        const size_t end = SkipSet(p, i);
        if (end == absl::string_view::npos) return Fail("[ without ]", base + i);
        i = end - 1;
      } else if (p[i] == '{') {
        ++depth;
      } else if ((p[i] == ',' && depth == 1) || (p[i] == '}' && --depth == 0)) {
        parts.push_back(p.substr(from, i - from));
        from = i + 1;
        close = i;
        if (p[i] == '}') return true;
      }
    }
    return Fail("{ without }", base + open);
  }

  bool Path(absl::string_view pattern) {
    if (pattern.empty()) return Fail("an empty pattern matches nothing", 0);
    const bool absolute = pattern[0] == '/';
    size_t i = absolute ? 1 : 0;
    bool first = true, deep = false;
    for (;;) {
      size_t end = i;
      while (end < pattern.size() && pattern[end] != '/') {
        if (pattern[end] == '\\')
          ++end;
        else if (pattern[end] == '[')
          end = SkipSet(pattern, end) - 1;
        ++end;
      }
      const absl::string_view segment = pattern.substr(i, end - i);
      if (segment == "..") return Fail("a pattern with .. matches nothing: paths are resolved first", i);
      if (segment.size() >= 2 && segment.find_first_not_of('*') == absl::string_view::npos) {
        deep = true;
        if (first && !absolute && end == pattern.size())
          Add(Type::kDoubleStar);
        else if (end >= pattern.size())
          Add(Type::kSubtree);
      } else if (!segment.empty() && segment != ".") {
        if (deep)
          Add(Type::kDirs);
        else if (!first || absolute)
          Literal("/");
        deep = false;
        if (!Segment(segment, i)) return false;
      }
      if (deep && end < pattern.size() &&
          pattern.substr(end).find_first_not_of('/') == absl::string_view::npos) {
        Add(Type::kSubtree);
        break;
      }
      first = false;
      if (end >= pattern.size()) break;
      i = end + 1;
    }
    if (glob_->tokens_.empty()) Literal("/");
    return true;
  }

  bool Segment(absl::string_view p, size_t base) {
    for (size_t i = 0; i < p.size(); ++i) {
      switch (p[i]) {
        case '*':
          if (kind_ == GlobKind::kWord || (i + 1 < p.size() && p[i + 1] == '*')) {
            while (i + 1 < p.size() && p[i + 1] == '*') ++i;
            Add(Type::kDoubleStar);
          } else {
            Add(Type::kStar);
          }
          break;
        case '?':
          Add(Type::kAnyChar);
          break;
        case '[':
          if (!Set(p, i, base)) return false;
          break;
        case '\\':
          if (++i == p.size()) return Fail("a backslash at the end quotes nothing", base + i - 1);
          [[fallthrough]];
        default:
          Literal(p.substr(i, 1));
      }
    }
    return true;
  }

  bool Set(absl::string_view p, size_t& i, size_t base) {
    const size_t end = SkipSet(p, i);
    if (end == absl::string_view::npos) return Fail("[ without ]", base + i);
    GlobToken token;
    token.type = Type::kSet;
    size_t k = i + 1;
    if (p[k] == '!' || p[k] == '^') {
      token.negated = true;
      ++k;
    }
    while (k + 1 < end) {
      const uint32_t low = SetChar(p, k);
      uint32_t high = low;
      if (k + 2 < end && p[k] == '-') {
        ++k;
        high = SetChar(p, k);
      }
      if (high < low) return Fail("a range that runs backwards", base + i);
      token.ranges.emplace_back(low, high);
    }
    if (token.ranges.empty()) return Fail("an empty [] matches nothing", base + i);
    glob_->tokens_.push_back(std::move(token));
    i = end - 1;
    return true;
  }

  static uint32_t SetChar(absl::string_view p, size_t& k) {
    if (p[k] == '\\') ++k;
    size_t length;
    const uint32_t code = Decode(p, k, length);
    k += length;
    return code;
  }

  void Add(Type type) {
    auto& tokens = glob_->tokens_;
    if (type == Type::kDoubleStar && !tokens.empty() && tokens.back().type == Type::kDoubleStar) return;
    tokens.emplace_back().type = type;
  }

  void Literal(absl::string_view text) {
    auto& tokens = glob_->tokens_;
    if (tokens.empty() || tokens.back().type != Type::kLiteral) tokens.emplace_back();
    absl::StrAppend(&tokens.back().literal, text);
  }

  const GlobKind kind_;
  GlobError& error_;
  Glob* glob_ = nullptr;
};

bool Glob::Parse(absl::string_view pattern, GlobKind kind, std::vector<Glob>& out, GlobError& error) {
  GlobParser parser(kind, error);
  std::vector<std::string> alternatives;
  if (pattern.empty()) return parser.Fail("an empty pattern matches nothing", 0);
  if (pattern.size() > 4096) return parser.Fail("longer than 4096 bytes", 0);
  if (!parser.Alternatives(pattern, 0, alternatives)) return false;
  for (const std::string& alternative : alternatives) {
    if (!parser.Glob_(alternative, out.emplace_back())) return false;
  }
  return true;
}

size_t CountAlternatives(absl::string_view pattern) {
  // Of each open brace: the alternatives that are complete, and those of the one that is being read.
  struct Level {
    size_t complete = 0, current = 1;
  };
  constexpr size_t kEnough = 1u << 20;
  std::vector<Level> levels(1);
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\') {
      ++i;
    } else if (c == '{') {
      levels.emplace_back();
    } else if (c == ',' && levels.size() > 1) {
      levels.back().complete += levels.back().current;
      levels.back().current = 1;
    } else if (c == '}' && levels.size() > 1) {
      const size_t all = levels.back().complete + levels.back().current;
      levels.pop_back();
      levels.back().current = std::min(levels.back().current * all, kEnough);
    }
  }
  return levels.front().current;
}

bool Glob::Matches(absl::string_view text) const { return Matcher(tokens_, text, Separator(kind_)).Run(); }

bool Glob::IsLiteral() const { return tokens_.size() == 1 && tokens_[0].type == Type::kLiteral; }

absl::string_view Glob::literal() const {
  return tokens_.empty() || tokens_[0].type != Type::kLiteral ? absl::string_view() : tokens_[0].literal;
}

Glob Glob::WithPrefix(absl::string_view from, absl::string_view to) const {
  Glob out = *this;
  out.tokens_[0].literal = absl::StrCat(to, absl::string_view(tokens_[0].literal).substr(from.size()));
  return out;
}

std::string Glob::ToString() const {
  std::string out;
  for (const GlobToken& token : tokens_) {
    switch (token.type) {
      case Type::kLiteral:
        out += EscapeGlob(token.literal);
        break;
      case Type::kAnyChar:
        out += '?';
        break;
      case Type::kSet:
        out += token.negated ? "[!...]" : "[...]";
        break;
      case Type::kStar:
        out += '*';
        break;
      case Type::kDoubleStar:
        out += kind_ == GlobKind::kWord ? "*" : "**";
        break;
      case Type::kDirs:
        absl::StrAppend(&out, "/**/");
        break;
      case Type::kSubtree:
        absl::StrAppend(&out, "/**");
        break;
    }
  }
  return out;
}

std::string EscapeGlob(absl::string_view text) {
  std::string out;
  for (const char c : text) {
    if (absl::StrContains(kSpecial, c)) out.push_back('\\');
    out.push_back(c);
  }
  return out;
}

std::string GlobSample(const Glob& glob) {
  std::string out;
  for (const GlobToken& token : glob.tokens()) {
    switch (token.type) {
      case Type::kLiteral:
        out += token.literal;
        break;
      case Type::kAnyChar:
      case Type::kStar:
      case Type::kDoubleStar:
        out += 'x';
        break;
      case Type::kSet: {
        char c = 'x';
        for (int k = 0; k < 95 && !SetMatches(token, static_cast<uint8_t>(c)); ++k)
          c = c == '~' ? '!' : c + 1;
        out += c;
        break;
      }
      case Type::kDirs:
        absl::StrAppend(&out, "/x/");
        break;
      case Type::kSubtree:
        absl::StrAppend(&out, "/x");
        break;
    }
  }
  if (out.empty()) out.push_back('x');
  return out;
}

absl::string_view NormalizePath(absl::string_view path, std::string& storage) {
  if (path.empty() || path[0] != '/') return path;
  const bool clean = !absl::StrContains(path, "//") && !absl::StrContains(path, "/.") &&
                     (path.size() == 1 || path.back() != '/');
  if (clean) return path;
  storage.clear();
  for (size_t i = 0; i < path.size();) {
    const size_t end = std::min(path.find('/', i), path.size());
    const absl::string_view segment = path.substr(i, end - i);
    if (segment == "..") {
      if (const size_t slash = storage.rfind('/'); slash != std::string::npos) storage.erase(slash);
    } else if (!segment.empty() && segment != ".") {
      absl::StrAppend(&storage, "/", segment);
    }
    i = end + 1;
  }
  if (storage.empty()) storage.push_back('/');
  return storage;
}

}  // namespace agentmon::policy
