#include "common/policy/path_index.h"

#include <algorithm>

#include "absl/strings/match.h"

namespace agentmon::policy {
namespace {

using Type = GlobToken::Type;
constexpr uint64_t kSeed = 0xcbf29ce484222325u;
constexpr size_t kStartBytes = 4;

uint64_t Extend(uint64_t hash, absl::string_view text) {
  for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  return hash;
}
uint64_t Hash(absl::string_view text) { return Extend(kSeed, text); }
uint64_t Mix(uint64_t prefix, uint64_t shape, uint64_t key) {
  uint64_t h = (prefix + shape * 0x9e3779b97f4a7c15u) ^ (key * 0xff51afd7ed558ccdu);
  return h ^ h >> 29;
}

// ".pem" of "a.b.pem"; empty when there is no dot.
absl::string_view Extension(absl::string_view name) {
  const size_t dot = name.rfind('.');
  return dot == absl::string_view::npos ? absl::string_view() : name.substr(dot);
}

}  // namespace

PathKeys::PathKeys(absl::string_view p) : path(p) {
  uint64_t prefix = kSeed;
  for (size_t i = 0;;) {
    Segment segment;
    const bool slash = i < p.size() && p[i] == '/';
    segment.prefix_hash = prefix;
    segment.begin = static_cast<uint32_t>(i + slash);
    const size_t end = std::min(p.find('/', segment.begin), p.size());
    segment.end = static_cast<uint32_t>(end);
    const absl::string_view text = p.substr(segment.begin, end - segment.begin);
    segment.hash = Hash(text);
    if (slash) prefix = Extend(prefix, "/");
    prefix = Extend(prefix, text);
    segments.push_back(segment);
    if (end == p.size()) break;
    i = end;
  }
  whole_hash = prefix;
}

FirstRules::FirstRules(uint32_t operations) : operations_(operations) {
  for (uint32_t rest = operations; rest != 0; rest &= rest - 1) best_.emplace_back(rest & -rest, kNone);
}

bool FirstRules::Wants(uint32_t rule, uint32_t operations) const {
  for (const auto& [bit, best] : best_) {
    if ((operations & bit) && rule < best) return true;
  }
  return false;
}

void FirstRules::Set(uint32_t rule, uint32_t operations) {
  last_ = 0;
  for (auto& [bit, best] : best_) {
    if ((operations & bit) && rule < best) best = rule;
    last_ = std::max(last_, best);
  }
}

uint32_t FirstRules::Of(uint32_t operation_bit) const {
  for (const auto& [bit, best] : best_) {
    if (bit == operation_bit) return best;
  }
  return kNone;
}

namespace {

// The literal segments of a glob with whether each is known to be whole, and what its last segment looks
// like.
struct Reading {
  absl::string_view longest;     // a whole literal segment
  absl::string_view last_start;  // literal start of the last segment
  absl::string_view last_end;    // literal end of the last segment
  bool last_whole = false;       // the last segment is literal, last_end all of it
  bool last_known = true;        // the last segment's start is known
};

Reading Read(absl::Span<const GlobToken> tokens, size_t skip) {
  Reading out;
  bool at_start = true;  // the position follows a slash
  for (size_t t = 0; t < tokens.size(); ++t) {
    const GlobToken& token = tokens[t];
    if (token.type == Type::kDirs) {
      at_start = out.last_known = true;
      out.last_start = out.last_end = {};
      out.last_whole = false;
      continue;
    }
    if (token.type != Type::kLiteral) {
      if (token.type == Type::kDoubleStar) out.last_known = false;
      if (at_start) out.last_start = {};
      at_start = out.last_whole = false;
      out.last_end = {};
      continue;
    }
    absl::string_view text = token.literal;
    if (t == 0) text.remove_prefix(skip);
    const bool ends =
        t + 1 == tokens.size() || tokens[t + 1].type == Type::kDirs || tokens[t + 1].type == Type::kSubtree;
    bool whole_start = at_start;
    for (;;) {
      const size_t slash = text.find('/');
      const absl::string_view piece = text.substr(0, slash);
      const bool whole = whole_start && (slash != absl::string_view::npos || ends);
      if (whole && piece.size() > out.longest.size()) out.longest = piece;
      if (slash == absl::string_view::npos) {
        out.last_end = piece;
        if (whole_start) {
          out.last_start = piece;
          out.last_known = true;
        }
        out.last_whole = whole;
        at_start = whole_start && piece.empty();
        break;
      }
      text.remove_prefix(slash + 1);
      whole_start = true;
    }
  }
  return out;
}

}  // namespace

PathIndex::Place PathIndex::Classify(const Glob& glob) {
  const auto& tokens = glob.tokens();
  Place place;
  const absl::string_view lead = glob.literal();
  if (glob.IsLiteral()) return place.prefix = lead, place.list = Place::kExact, place;
  if (tokens.size() == 2 && !lead.empty() && tokens[1].type == Type::kSubtree) {
    return place.prefix = lead, place.list = Place::kSubtree, place;
  }
  if (tokens.size() == 1 && (tokens[0].type == Type::kSubtree || tokens[0].type == Type::kDoubleStar)) {
    // "/**" still asks for a leading slash, which abstract socket names lack.
    place.list = tokens[0].type == Type::kDoubleStar ? Place::kSubtree : Place::kRest;
    return place;
  }
  // A literal before "/**/" or "/**" ends at a segment's end, any other at its last slash.
  size_t skip = 0;
  if (!lead.empty()) {
    const bool whole = tokens[1].type == Type::kDirs || tokens[1].type == Type::kSubtree;
    const size_t slash = lead.rfind('/');
    place.prefix = whole ? lead : lead.substr(0, slash == absl::string_view::npos ? 0 : slash);
    skip = whole ? lead.size() : slash == absl::string_view::npos ? 0 : slash + 1;
  }
  const Reading reading = Read(tokens, skip);
  const bool subtree = tokens.back().type == Type::kSubtree;
  place.list = Place::kKeyed;
  if (!subtree && reading.last_whole && !reading.last_end.empty()) {
    place.shape = kName, place.key = reading.last_end;
  } else if (!subtree && tokens.back().type == Type::kLiteral && !Extension(reading.last_end).empty()) {
    place.shape = kExtension, place.key = Extension(reading.last_end);
  } else if (!subtree && reading.last_known && reading.last_start.size() >= kStartBytes) {
    place.shape = kStart, place.key = reading.last_start.substr(0, kStartBytes);
  } else if (!reading.longest.empty()) {
    place.shape = kSegment, place.key = reading.longest;
  } else {
    place.list = Place::kRest;
  }
  return place;
}

// A pattern that can add nothing to what is already in its list is left out.
void PathIndex::Append(List& list, uint32_t pattern) {
  if (keep_all_) return list.push_back(pattern);
  const Pattern& added = globs_[pattern];
  uint32_t covered = 0;
  constexpr size_t kLookBack = 32;
  for (size_t i = list.size() - std::min(list.size(), kLookBack); i < list.size(); ++i) {
    if (globs_[list[i]].glob.tokens() == added.glob.tokens()) covered |= globs_[list[i]].operations;
  }
  if ((added.operations & ~covered) != 0) list.push_back(pattern);
}

void PathIndex::Add(const Glob& glob, uint32_t rule, uint32_t operations) {
  const auto pattern = static_cast<uint32_t>(globs_.size());
  globs_.push_back({glob, rule, operations});
  const Place place = Classify(glob);
  const uint64_t prefix_hash = Hash(place.prefix);
  const auto [found, inserted] = by_prefix_.try_emplace(prefix_hash, static_cast<uint32_t>(nodes_.size()));
  if (inserted) nodes_.emplace_back().prefix = std::string(place.prefix);
  Node& node = nodes_[found->second];
  switch (place.list) {
    case Place::kExact:
      return Append(node.exact, pattern);
    case Place::kSubtree:
      // Two prefixes with one hash share a node; only those of its own prefix are certain to match there.
      return Append(node.prefix == place.prefix ? node.subtree : node.rest, pattern);
    case Place::kRest:
      return Append(node.rest, pattern);
    case Place::kKeyed:
      node.shapes |= place.shape;
      return Append(keyed_[Mix(prefix_hash, place.shape, Hash(place.key))], pattern);
  }
}

void PathIndex::Scan(const List& list, absl::string_view path, bool certain, FirstRules& first) const {
  for (const uint32_t index : list) {
    const Pattern& pattern = globs_[index];
    if (pattern.rule >= first.last()) return;
    if (!first.Wants(pattern.rule, pattern.operations)) continue;
    if (certain || pattern.glob.Matches(path)) first.Set(pattern.rule, pattern.operations);
  }
}

template <typename ScanList>
void PathIndex::Walk(const PathKeys& keys, const ScanList& scan) const {
  if (globs_.empty()) return;
  const absl::string_view path = keys.path;
  const PathKeys::Segment& last = keys.segments.back();
  const absl::string_view name = path.substr(last.begin, last.end - last.begin);
  const auto keyed = [&](uint64_t prefix_hash, Shape shape, uint64_t key) {
    const auto found = keyed_.find(Mix(prefix_hash, shape, key));
    if (found != keyed_.end()) scan(found->second, false);
  };
  const auto visit = [&](uint64_t hash, absl::string_view prefix, size_t depth) {
    const auto found = by_prefix_.find(hash);
    if (found == by_prefix_.end()) return;
    const Node& node = nodes_[found->second];
    scan(node.subtree, node.prefix == prefix);
    if (depth == keys.segments.size()) scan(node.exact, false);
    scan(node.rest, false);
    if (node.shapes & kName) keyed(hash, kName, last.hash);
    if (node.shapes & kExtension) keyed(hash, kExtension, Hash(Extension(name)));
    if ((node.shapes & kStart) && name.size() >= kStartBytes)
      keyed(hash, kStart, Hash(name.substr(0, kStartBytes)));
    if (node.shapes & kSegment) {
      for (size_t i = depth; i < keys.segments.size(); ++i) keyed(hash, kSegment, keys.segments[i].hash);
    }
  };
  if (!absl::StartsWith(path, "/")) visit(kSeed, "", 0);
  for (size_t i = 0; i < keys.segments.size(); ++i) {
    const PathKeys::Segment& segment = keys.segments[i];
    if (segment.begin == 0) continue;  // the first segment of an abstract name: visited above
    visit(segment.prefix_hash, path.substr(0, segment.begin - 1), i);
  }
  visit(keys.whole_hash, path, keys.segments.size());
}

void PathIndex::Find(const PathKeys& keys, FirstRules& first) const {
  Walk(keys, [&](const List& list, bool certain) { Scan(list, keys.path, certain, first); });
}

void PathIndex::Collect(const PathKeys& keys, std::vector<uint32_t>& rules) const {
  Walk(keys, [&](const List& list, bool certain) {
    for (const uint32_t index : list) {
      if (certain || globs_[index].glob.Matches(keys.path)) rules.push_back(globs_[index].rule);
    }
  });
}

}  // namespace agentmon::policy
