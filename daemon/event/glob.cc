#include "daemon/event/glob.h"

#include <utility>

namespace agentmon {
namespace {

constexpr size_t kMaxPattern = 4096;
constexpr size_t kMaxAlternatives = 256;

// The place of the bracket that closes the one at `open`, or npos.
size_t ClosingBracket(absl::string_view pattern, size_t open) {
  size_t at = open + 1;
  if (at < pattern.size() && (pattern[at] == '!' || pattern[at] == '^')) ++at;
  if (at < pattern.size() && pattern[at] == ']') ++at;  // a first ']' is a member
  while (at < pattern.size() && pattern[at] != ']') at += pattern[at] == '\\' ? 2 : 1;
  return at < pattern.size() ? at : absl::string_view::npos;
}

struct Braces {
  size_t open;
  size_t close;
  std::vector<absl::string_view> options;
};

// The first brace group outside quotes and brackets; open = npos when there is none.
absl::StatusOr<Braces> FindBraces(absl::string_view pattern) {
  Braces braces{absl::string_view::npos, absl::string_view::npos, {}};
  int depth = 0;
  size_t option = 0;
  for (size_t at = 0; at < pattern.size(); ++at) {
    const char c = pattern[at];
    if (c == '\\') {
      ++at;
    } else if (c == '[') {
      at = ClosingBracket(pattern, at);
      if (at == absl::string_view::npos) return absl::InvalidArgumentError("'[' without ']'");
    } else if (c == '{' && depth++ == 0) {
      braces.open = at;
      option = at + 1;
    } else if ((c == ',' || c == '}') && depth == 1) {
      braces.options.push_back(pattern.substr(option, at - option));
      option = at + 1;
      if (c == '}') {
        braces.close = at;
        return braces;
      }
    } else if (c == '}' && depth > 1) {
      --depth;
    }
  }
  if (depth > 0) return absl::InvalidArgumentError("'{' without '}'");
  return braces;
}

absl::Status ExpandBraces(const std::string& pattern, std::vector<std::string>* out) {
  absl::StatusOr<Braces> braces = FindBraces(pattern);
  if (!braces.ok()) return braces.status();
  if (braces->open == absl::string_view::npos) {
    if (out->size() >= kMaxAlternatives) return absl::InvalidArgumentError("too many alternatives in braces");
    out->push_back(pattern);
    return absl::OkStatus();
  }
  for (const absl::string_view option : braces->options) {
    std::string one = pattern.substr(0, braces->open);
    one.append(option.data(), option.size());
    one.append(pattern, braces->close + 1, std::string::npos);
    if (absl::Status status = ExpandBraces(one, out); !status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Glob> Glob::Compile(absl::string_view pattern) {
  if (pattern.size() > kMaxPattern) return absl::InvalidArgumentError("pattern of more than 4096 bytes");
  std::vector<std::string> alternatives;
  if (absl::Status status = ExpandBraces(std::string(pattern), &alternatives); !status.ok()) return status;
  Glob glob;
  for (const std::string& alternative : alternatives) {
    if (absl::Status status = glob.AddAlternative(alternative); !status.ok()) return status;
  }
  return glob;
}

absl::Status Glob::AddAlternative(absl::string_view pattern) {
  Program program;
  for (size_t at = 0; at < pattern.size();) {
    const char c = pattern[at];
    if (c == '[') {
      absl::StatusOr<size_t> next = AddSet(pattern, at, &program);
      if (!next.ok()) return next.status();
      at = *next;
    } else if (c == '/' && pattern.substr(at) == "/**") {
      program.push_back({Token::kSplit, 0, 3});
      program.push_back({Token::kByte, '/', 0});
      program.push_back({Token::kDoubleStar, 0, 0});
      break;
    } else if (c == '*') {
      at = AddStars(pattern, at, &program);
    } else if (c == '?') {
      program.push_back({Token::kAny, 0, 0});
      ++at;
    } else {
      if (c == '\\' && ++at == pattern.size())
        return absl::InvalidArgumentError("pattern ends with a backslash");
      program.push_back({Token::kByte, static_cast<uint8_t>(pattern[at]), 0});
      ++at;
    }
  }
  alternatives_.push_back(std::move(program));
  return absl::OkStatus();
}

size_t Glob::AddStars(absl::string_view pattern, size_t at, Program* program) {
  const size_t start = at;
  while (at < pattern.size() && pattern[at] == '*') ++at;
  const bool segment_start = start == 0 || pattern[start - 1] == '/';
  if (at - start == 1) {
    program->push_back({Token::kStar, 0, 0});
  } else if (segment_start && at < pattern.size() && pattern[at] == '/') {
    program->push_back({Token::kSplit, 0, 2});
    program->push_back({Token::kTree, 0, 0});
    ++at;
  } else {
    program->push_back({Token::kDoubleStar, 0, 0});
  }
  return at;
}

absl::StatusOr<size_t> Glob::AddSet(absl::string_view pattern, size_t at, Program* program) {
  const size_t close = ClosingBracket(pattern, at);
  if (close == absl::string_view::npos) return absl::InvalidArgumentError("'[' without ']'");
  const auto byte_at = [&](size_t* i) {
    if (pattern[*i] == '\\' && *i + 1 < close) ++*i;
    return static_cast<uint8_t>(pattern[(*i)++]);
  };
  ByteSet set;
  size_t i = at + 1;
  const bool negated = pattern[i] == '!' || pattern[i] == '^';
  if (negated) ++i;
  while (i < close) {
    const int first = byte_at(&i);
    int last = first;
    if (i + 1 < close && pattern[i] == '-') {
      ++i;
      last = byte_at(&i);
    }
    for (int byte = first; byte <= last; ++byte) set.set(byte);
  }
  if (negated) set.flip();
  set.reset('/');
  program->push_back({Token::kSet, 0, static_cast<uint16_t>(sets_.size())});
  sets_.push_back(set);
  return close + 1;
}

bool Glob::Matches(absl::string_view path) const {
  for (const Program& program : alternatives_) {
    if (Run(program, path)) return true;
  }
  return false;
}

// Marks `state` and what is reached from it without taking a byte.
void Glob::Enter(const Program& program, size_t state, std::vector<uint8_t>* states) const {
  while (!(*states)[state]) {
    (*states)[state] = 1;
    if (state == program.size()) return;
    const Token& token = program[state];
    if (token.type == Token::kSplit) {
      Enter(program, state + token.index, states);
    } else if (token.type != Token::kStar && token.type != Token::kDoubleStar) {
      return;
    }
    ++state;
  }
}

bool Glob::Run(const Program& program, absl::string_view path) const {
  std::vector<uint8_t> now(program.size() + 1), next(program.size() + 1);
  Enter(program, 0, &now);
  for (const char c : path) {
    const auto byte = static_cast<uint8_t>(c);
    std::fill(next.begin(), next.end(), 0);
    bool alive = false;
    for (size_t state = 0; state < program.size(); ++state) {
      if (!now[state]) continue;
      const Token& token = program[state];
      const bool stays = (token.type == Token::kStar && byte != '/') || token.type == Token::kDoubleStar ||
                         token.type == Token::kTree;
      const bool goes_on = (token.type == Token::kByte && token.byte == byte) ||
                           (token.type == Token::kAny && byte != '/') ||
                           (token.type == Token::kSet && sets_[token.index][byte]) ||
                           (token.type == Token::kTree && byte == '/');
      if (stays) Enter(program, state, &next);
      if (goes_on) Enter(program, state + 1, &next);
      alive |= stays || goes_on;
    }
    if (!alive) return false;
    std::swap(now, next);
  }
  return now[program.size()] != 0;
}

}  // namespace agentmon
