// The part of a snapshot that kernel maps hold, generated from the same compiled rules that Evaluate uses.
//
// A list is in the order of ranks (the order of the file): the entry with the lowest rank that matches
// decides. Where an entry says kUserSpace before any other decides, the kernel must ask.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/policy/snapshot.h"
#include "common/policy/subject.h"

namespace agentmon::policy {

struct KernelPath {
  enum class Match : uint8_t {
    kExact,      // this path; hold it by inode too
    kTree,       // this directory and all below it
    kName,       // last segment, below root
    kSegment,    // some segment, below root: the directory and all below it
    kSuffix,     // end of the last segment, below root
    kPrefix,     // start of the last segment, below root
    kUserSpace,  // a pattern that needs more, below root
  };
  Match match = Match::kUserSpace;
  std::string text;
  std::string root;  // "" = everywhere
  uint32_t rank = 0;
  uint32_t operations = 0;
  Decision decision = Decision::kDeny;
  bool conditional = false;    // exec: arguments or depth count as well, so user space decides
  bool any_directory = false;  // exec: it matches outside of trusted directories too
};

struct KernelDestination {
  uint32_t rank = 0;
  std::vector<PortRange> ports;  // empty = all
  uint8_t protocols = 0;         // 0 = all
  bool needs_name = false;       // only a name can tell: the resolver's map, else user space
  Decision decision = Decision::kDeny;
};

// A node of the longest-prefix map. What holds for a shorter prefix holds here too: follow parent.
struct KernelPrefix {
  Prefix prefix;
  int parent = -1;
  std::vector<KernelDestination> destinations;  // by rank
};

struct KernelLayer {
  LayerKind kind = LayerKind::kBase;
  Posture posture = Posture::kEnforce;
  std::array<Decision, kDefaults> defaults{};
  std::vector<KernelPath> files, unix_sockets, programs;
  std::vector<KernelPrefix> v4, v6;  // sorted by address and length; [0] is /0
  std::vector<std::string> names;    // host names and patterns that the resolver must know
};

struct KernelView {
  std::vector<KernelLayer> layers;  // as in the snapshot; [0] built-in
  SeccompRules seccomp;
  std::vector<std::string> roots;  // literal paths of all rules on files: to be held by inode
};

KernelView MakeKernelView(const Snapshot& snapshot);

// File rules that the kernel cannot decide in all cases, by layer and rank: some pattern of theirs needs user
// space, or one that does comes before them and may be about the same files.
std::set<std::pair<size_t, uint32_t>> FileRulesInPart(const KernelView& view);

// What a program in the kernel makes of one layer's lists, for one operation bit. Nullopt: it must ask.
// kNone: nothing matches and the layer has no default.
std::optional<Decision> KernelJudgePath(const KernelLayer& layer, const std::vector<KernelPath>& list,
                                        absl::string_view path, uint32_t operation, DefaultFor fallback);
std::optional<Decision> KernelJudgeAddress(const KernelLayer& layer, const Address& address, uint16_t port,
                                           uint8_t protocol);

}  // namespace agentmon::policy
