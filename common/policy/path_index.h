// Finds the first rule whose glob matches a path without looking at every rule.
//
// Each glob is filed under its literal leading directory and, below that, under what it says about the last
// segment (a name, an extension, its first four bytes) or some literal segment. A look-up visits the path's
// own directories only, so its cost does not grow with the number of rules.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/policy/glob.h"

namespace agentmon::policy {

// A path cut at its slashes, hashed once for all indexes that look it up. Borrows the path.
struct PathKeys {
  explicit PathKeys(absl::string_view path);
  struct Segment {
    uint32_t begin = 0, end = 0;  // of the segment's text
    uint64_t prefix_hash = 0;     // of everything before the slash that starts it
    uint64_t hash = 0;            // of the segment
  };
  absl::string_view path;
  absl::InlinedVector<Segment, 24> segments;
  uint64_t whole_hash = 0;
};

// For each asked operation (bit) the first rule that matches.
class FirstRules {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;
  explicit FirstRules(uint32_t operations);
  // Would rule, which covers operations, change anything?
  bool Wants(uint32_t rule, uint32_t operations) const;
  void Set(uint32_t rule, uint32_t operations);
  uint32_t last() const { return last_; }  // every rule above this one is of no use
  uint32_t operations() const { return operations_; }
  uint32_t Of(uint32_t operation_bit) const;

 private:
  uint32_t operations_;
  uint32_t last_ = kNone;
  absl::InlinedVector<std::pair<uint32_t, uint32_t>, 4> best_;  // operation bit, rule
};

class PathIndex {
 public:
  // keep_all: patterns that can never be first are kept too, for Collect.
  explicit PathIndex(bool keep_all = false) : keep_all_(keep_all) {}
  // Rules must be added in order.
  void Add(const Glob& glob, uint32_t rule, uint32_t operations);
  void Find(const PathKeys& keys, FirstRules& first) const;
  // Every rule that has a matching glob, in no order, possibly more than once.
  void Collect(const PathKeys& keys, std::vector<uint32_t>& rules) const;
  bool empty() const { return globs_.empty(); }

  struct Pattern {
    Glob glob;
    uint32_t rule;
    uint32_t operations;
  };
  const std::vector<Pattern>& patterns() const { return globs_; }

 private:
  enum Shape : uint8_t { kName = 1, kExtension = 2, kStart = 4, kSegment = 8 };
  using List = std::vector<uint32_t>;  // indexes into globs_, so in the order of rules
  struct Node {
    std::string prefix;
    uint8_t shapes = 0;  // which keyed lists exist below this prefix
    List exact, subtree, rest;
  };
  struct Place {
    absl::string_view prefix;
    Shape shape{};
    absl::string_view key;
    enum { kExact, kSubtree, kRest, kKeyed } list = kRest;
  };
  static Place Classify(const Glob& glob);
  void Append(List& list, uint32_t pattern);
  void Scan(const List& list, absl::string_view path, bool certain, FirstRules& first) const;
  // Calls scan(list, certain) for every list that can hold a match.
  template <typename ScanList>
  void Walk(const PathKeys& keys, const ScanList& scan) const;

  const bool keep_all_;
  std::vector<Pattern> globs_;
  absl::flat_hash_map<uint64_t, uint32_t> by_prefix_;
  std::vector<Node> nodes_;
  absl::flat_hash_map<uint64_t, List> keyed_;
};

}  // namespace agentmon::policy
