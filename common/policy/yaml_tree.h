// YAML (and so JSON) as a tree in which every node knows its place. The only user of libyaml.
//
// Strict where policies need it: duplicate keys, several documents, unknown aliases and cycles are errors.
// Bounded: see YamlLimits. Never throws, never reads a file.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/policy/diagnostic.h"

namespace agentmon::policy {

struct YamlLimits {
  size_t bytes = 4u << 20;
  size_t depth = 64;
  size_t nodes = 1'000'000;
  size_t alias_nodes = 100'000;  // nodes that aliases and merge keys add, all together
};

struct YamlNode {
  enum class Kind : uint8_t { kScalar, kList, kMap };
  Kind kind = Kind::kScalar;
  bool quoted = false;      // a scalar in quotes or a block scalar: always text
  bool incomplete = false;  // the file ended, or broke, inside this node
  Position at;
  std::string scalar;
  std::vector<const YamlNode*> items;                                // of a list
  std::vector<std::pair<const YamlNode*, const YamlNode*>> entries;  // of a map; keys are scalars
  size_t weight = 1;                                                 // nodes below, aliases counted in full

  bool IsNull() const;  // empty, ~ or null, not quoted
};

class YamlTree {
 public:
  // Null when the file is empty. After a syntax error the tree holds what came before it.
  const YamlNode* root() const { return root_; }

  // Parses text; errors are added to out under this file name.
  static YamlTree Parse(absl::string_view text, absl::string_view file, Diagnostics& out,
                        const YamlLimits& limits = YamlLimits());

 private:
  friend class YamlBuilder;
  std::deque<YamlNode> nodes_;  // stable addresses
  const YamlNode* root_ = nullptr;
};

}  // namespace agentmon::policy
