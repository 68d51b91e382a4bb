#include "daemon/enforce/lsm_names.h"

#include <algorithm>
#include <bitset>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace agentmon {
namespace {

using policy::GlobToken;
using Bytes = std::bitset<256>;
using Row = std::vector<uint64_t>;

constexpr size_t kPositions = size_t{AM_LSM_NAME_WORDS} * 64;
constexpr uint32_t kLastAscii = 0x7f;

struct Position {
  enum class Repeats : uint8_t { kNo, kWithin, kAcross, kRest };
  Bytes enters;
  Repeats repeats = Repeats::kNo;
  bool optional = false;
};
using Repeats = Position::Repeats;

Bytes All() { return ~Bytes(); }
// Which may begin a character.
Bytes Beginnings() {
  Bytes bytes = All();
  for (size_t byte = 0x80; byte < 0xc0; ++byte) bytes.reset(byte);
  return bytes;
}
Bytes AllBut(char byte) { return All().reset(static_cast<unsigned char>(byte)); }
Bytes Only(char byte) { return Bytes().set(static_cast<unsigned char>(byte)); }

absl::StatusOr<Bytes> BytesOf(const GlobToken& set) {
  Bytes in;
  for (const auto& [first, last] : set.ranges) {
    // What is not in a set that ends with ASCII may be any other character, of however many bytes.
    if (last > kLastAscii) return absl::ResourceExhaustedError("a set of characters beyond ASCII");
    for (uint32_t code = first; code <= last; ++code) in.set(code);
  }
  if (set.negated) in = ~in & Beginnings();
  return in.reset('/');
}

// The first one is the start, which nothing enters.
absl::StatusOr<std::vector<Position>> PositionsOf(const policy::Glob& glob) {
  std::vector<Position> row(1);
  for (const GlobToken& token : glob.tokens()) {
    switch (token.type) {
      case GlobToken::Type::kLiteral:
        for (const char byte : token.literal) row.push_back({Only(byte)});
        break;
      case GlobToken::Type::kAnyChar:
        row.push_back({Beginnings().reset('/'), Repeats::kRest});
        break;
      case GlobToken::Type::kSet: {
        ASSIGN_OR_RETURN(const Bytes bytes, BytesOf(token));
        row.push_back({bytes, token.negated ? Repeats::kRest : Repeats::kNo});
        break;
      }
      case GlobToken::Type::kStar:
        row.push_back({AllBut('/'), Repeats::kWithin, true});
        break;
      case GlobToken::Type::kDoubleStar:
        row.push_back({All(), Repeats::kAcross, true});
        break;
      case GlobToken::Type::kDirs:  // "/", or "/", anything and "/"
        row.push_back({Only('/'), Repeats::kAcross, true});
        row.push_back({Only('/')});
        break;
      case GlobToken::Type::kSubtree:
        row.push_back({Only('/'), Repeats::kAcross, true});
        break;
    }
  }
  return row;
}

class NameCompiler {
 public:
  NameCompiler() : out_(std::make_unique<am_lsm_names>()), enters_(256, Row(AM_LSM_NAME_WORDS)) {}

  absl::Status Add(const LsmNamePattern& pattern) {
    ASSIGN_OR_RETURN(const std::vector<Position> row, PositionsOf(*pattern.glob));
    if (next_ + row.size() > kPositions || out_->patterns == AM_LSM_NAME_PATTERNS)
      return absl::ResourceExhaustedError("too many patterns on sockets");
    const size_t first = next_;
    for (size_t i = 0; i < row.size(); ++i) {
      if (i > 2 && row[i].optional && row[i - 1].optional && row[i - 2].optional)
        return absl::ResourceExhaustedError(
            absl::StrCat(pattern.glob->ToString(), ": too many stars in a row"));
      Put(row, i, first + i);
    }
    next_ += row.size();
    am_lsm_pattern& end = out_->pattern[out_->patterns++];
    end.end = static_cast<am_u16>(next_ - 1);
    while (row[row.size() - 1 - end.early].optional) ++end.early;
    end.match = pattern.match;
    Set(out_->start, first);
    return absl::OkStatus();
  }

  absl::StatusOr<std::unique_ptr<am_lsm_names>> Finish() {
    out_->words = static_cast<am_u32>((next_ + 63) / 64);
    std::map<Row, am_u8> classes;
    for (size_t byte = 0; byte < enters_.size(); ++byte) {
      const auto [it, is_new] = classes.emplace(enters_[byte], static_cast<am_u8>(classes.size()));
      out_->class_of[byte] = it->second;
      if (!is_new) continue;
      if (classes.size() * out_->words > AM_LSM_NAME_CELLS)
        return absl::ResourceExhaustedError("too many patterns on sockets");
      std::copy_n(enters_[byte].begin(), out_->words, out_->cell + size_t{it->second} * out_->words);
    }
    return std::move(out_);
  }

 private:
  static void Set(am_u64* words, size_t position) { words[position / 64] |= 1ull << (position % 64); }

  void Put(const std::vector<Position>& row, size_t i, size_t at) {
    const Position& position = row[i];
    for (size_t byte = 0; byte < enters_.size(); ++byte) {
      if (position.enters[byte]) Set(enters_[byte].data(), at);
    }
    switch (position.repeats) {
      case Repeats::kNo:
        break;
      case Repeats::kWithin:
        Set(out_->within, at);
        break;
      case Repeats::kAcross:
        Set(out_->across, at);
        break;
      case Repeats::kRest:
        Set(out_->rest, at);
        break;
    }
    const auto optional = [&](size_t which) { return which < row.size() && row[which].optional; };
    if (optional(i + 1)) Set(out_->over_one, at);
    if (optional(i + 1) && optional(i + 2)) Set(out_->over_two, at);
  }

  std::unique_ptr<am_lsm_names> out_;
  std::vector<Row> enters_;  // for each byte the positions that it may enter
  size_t next_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<am_lsm_names>> MakeLsmNames(const std::vector<LsmNamePattern>& patterns) {
  NameCompiler compiler;
  for (const LsmNamePattern& pattern : patterns) RETURN_IF_ERROR(compiler.Add(pattern));
  return compiler.Finish();
}

}  // namespace agentmon
