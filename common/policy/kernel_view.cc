#include "common/policy/kernel_view.h"

#include <algorithm>
#include <set>

#include "absl/strings/match.h"

namespace agentmon::policy {
namespace {

using Type = GlobToken::Type;
using Match = KernelPath::Match;

bool Literal(const GlobToken& token, bool slash_allowed) {
  return token.type == Type::kLiteral && (slash_allowed || !absl::StrContains(token.literal, '/'));
}

// "/P/**/REST": the literal root and where REST starts. False: the glob does not have this form.
bool AfterDirs(const Glob& glob, std::string& root, size_t& rest) {
  const auto& t = glob.tokens();
  if (!t.empty() && t[0].type == Type::kDirs) return root.clear(), rest = 1, true;
  if (t.size() > 1 && Literal(t[0], true) && t[1].type == Type::kDirs)
    return root = t[0].literal, rest = 2, true;
  return false;
}

void Classify(const Glob& glob, KernelPath& out) {
  const auto& t = glob.tokens();
  const bool absolute = absl::StartsWith(glob.literal(), "/");
  if (glob.IsLiteral()) return out.match = Match::kExact, out.text = std::string(glob.literal()), void();
  if (t.size() == 1 && (t[0].type == Type::kSubtree || t[0].type == Type::kDoubleStar)) {
    out.match =
        t[0].type == Type::kSubtree ? Match::kTree : Match::kUserSpace;  // ** of sockets: abstract names too
    return;
  }
  if (t.size() == 2 && absolute && t[1].type == Type::kSubtree)
    return out.match = Match::kTree, out.text = t[0].literal, void();
  size_t r = 0;
  if (AfterDirs(glob, out.root, r)) {
    const size_t left = t.size() - r;
    if (left == 1 && Literal(t[r], false)) return out.match = Match::kName, out.text = t[r].literal, void();
    if (left == 2 && Literal(t[r], false) && t[r + 1].type == Type::kSubtree)
      return out.match = Match::kSegment, out.text = t[r].literal, void();
    if (left == 2 && t[r].type == Type::kStar && Literal(t[r + 1], false))
      return out.match = Match::kSuffix, out.text = t[r + 1].literal, void();
    if (left == 2 && Literal(t[r], false) && t[r + 1].type == Type::kStar)
      return out.match = Match::kPrefix, out.text = t[r].literal, void();
    out.match = Match::kUserSpace;
    return;
  }
  out.match = Match::kUserSpace;
  const absl::string_view lead = glob.literal();
  const bool whole = t.size() > 1 && (t[1].type == Type::kDirs || t[1].type == Type::kSubtree);
  if (!absolute) return;
  out.root = std::string(whole ? lead : lead.substr(0, lead.rfind('/')));
}

bool Below(absl::string_view path, absl::string_view root) {
  return root.empty() ||
         (absl::StartsWith(path, root) && path.size() > root.size() && path[root.size()] == '/');
}

bool Matches(const KernelPath& entry, absl::string_view path) {
  const absl::string_view name = path.substr(path.rfind('/') + 1);
  switch (entry.match) {
    case Match::kExact:
      return path == entry.text;
    case Match::kTree:
      return path == entry.text || (absl::StartsWith(path, "/") && Below(path, entry.text));
    case Match::kName:
      return Below(path, entry.root) && absl::StartsWith(path, "/") && name == entry.text;
    case Match::kSuffix:
      return Below(path, entry.root) && absl::StartsWith(path, "/") && absl::EndsWith(name, entry.text);
    case Match::kPrefix:
      return Below(path, entry.root) && absl::StartsWith(path, "/") && absl::StartsWith(name, entry.text);
    case Match::kSegment: {
      if (!Below(path, entry.root) || !absl::StartsWith(path, "/")) return false;
      for (size_t i = entry.root.size(); i < path.size();) {
        const size_t end = std::min(path.find('/', i + 1), path.size());
        if (path.substr(i + 1, end - i - 1) == entry.text) return true;
        i = end;
      }
      return false;
    }
    case Match::kUserSpace:
      return entry.root.empty() || path == entry.root || Below(path, entry.root);
  }
  return true;
}

bool MayMeet(absl::string_view a, absl::string_view b) {
  return a == b || a.empty() || b.empty() || Below(a, b) || Below(b, a);
}

absl::string_view Where(const KernelPath& path) {
  return path.match == Match::kExact || path.match == Match::kTree ? path.text : path.root;
}

std::vector<KernelPath> Paths(const PathIndex& index, const Document& document) {
  std::vector<KernelPath> out;
  for (const PathIndex::Pattern& pattern : index.patterns()) {
    KernelPath& entry = out.emplace_back();
    Classify(pattern.glob, entry);
    entry.rank = pattern.rule;
    entry.operations = pattern.operations;
    entry.decision = document.rules[pattern.rule].decision;
  }
  return out;
}

std::vector<KernelPath> Programs(const CommandIndex& index, const Document& document) {
  std::vector<KernelPath> out;
  for (const CommandRule& rule : index.rules()) {
    KernelPath entry;
    entry.rank = rule.rule;
    entry.operations = 1;
    entry.decision = document.rules[rule.rule].decision;
    entry.conditional =
        !rule.expressions.empty() || !rule.args.empty() || rule.min_depth > 0 || rule.max_depth >= 0;
    entry.any_directory = rule.anywhere;
    if (rule.any) entry.match = Match::kTree, out.push_back(entry);
    entry.any_directory = true;
    for (const Glob& glob : rule.paths) {
      entry.root.clear();
      entry.text.clear();
      Classify(glob, entry);
      out.push_back(entry);
    }
    entry.any_directory = rule.anywhere;
    for (const Glob& glob : rule.names) {
      entry.root.clear();
      entry.match = glob.IsLiteral() ? Match::kName : Match::kUserSpace;
      entry.text = std::string(glob.literal());
      out.push_back(entry);
    }
  }
  return out;
}

class Destinations {
 public:
  Destinations(const NetworkIndex& index, const Document& document, bool v6) : document_(document), v6_(v6) {
    Address any;
    any.v6 = v6;
    prefixes_.insert(Key({any, 0}));
    for (const NetworkRule& rule : index.rules()) {
      for (const auto* list : {&rule.prefixes, &rule.named_addresses}) {
        for (const Prefix& p : *list) {
          if (p.address.v6 == v6) prefixes_.insert(Key(p));
        }
      }
    }
    for (const auto& [address, length] : prefixes_) Node({address, length});
    for (const NetworkRule& rule : index.rules()) Rule_(rule);
    for (KernelPrefix& node : nodes_) {
      std::stable_sort(node.destinations.begin(), node.destinations.end(),
                       [](const auto& a, const auto& b) { return a.rank < b.rank; });
    }
  }
  std::vector<KernelPrefix> Take() { return std::move(nodes_); }

 private:
  using PrefixKey = std::pair<Address, int>;
  static PrefixKey Key(const Prefix& p) { return {p.address, p.length}; }

  void Node(const Prefix& prefix) {
    while (!open_.empty() && !(nodes_[open_.back()].prefix.length <= prefix.length &&
                               nodes_[open_.back()].prefix.Contains(prefix.address)))
      open_.pop_back();
    nodes_.push_back({prefix, open_.empty() ? -1 : open_.back(), {}});
    open_.push_back(static_cast<int>(nodes_.size()) - 1);
    at_[Key(prefix)] = open_.back();
  }

  void Rule_(const NetworkRule& rule) {
    const KernelDestination all{rule.rule, rule.ports, rule.protocols, rule.restricts_name,
                                document_.rules[rule.rule].decision};
    const auto put = [&](const Prefix& prefix, bool needs_name) {
      if (prefix.address.v6 != v6_) return;
      KernelDestination d = all;
      d.needs_name = needs_name;
      nodes_[at_[Key(prefix)]].destinations.push_back(std::move(d));
    };
    if (rule.prefixes.empty()) {
      nodes_[0].destinations.push_back(all);
      for (const Prefix& prefix : rule.named_addresses) put(prefix, false);
      return;
    }
    // Both a prefix and a name: where an address stands for the name too, the longer of the two decides.
    for (const Prefix& prefix : rule.prefixes) {
      put(prefix, rule.restricts_name);
      for (const Prefix& named : rule.named_addresses) {
        const bool inside = named.length >= prefix.length && prefix.Contains(named.address);
        const bool around = named.length < prefix.length && named.Contains(prefix.address);
        if (inside || around) put(inside ? named : prefix, false);
      }
    }
  }

  const Document& document_;
  const bool v6_;
  std::set<PrefixKey> prefixes_;
  std::vector<KernelPrefix> nodes_;
  std::vector<int> open_;
  std::map<PrefixKey, int> at_;
};

}  // namespace

KernelView MakeKernelView(const Snapshot& snapshot) {
  KernelView view;
  view.seccomp = snapshot.seccomp();
  for (const CompiledLayer& layer : snapshot.layers()) {
    KernelLayer& out = view.layers.emplace_back();
    out.kind = layer.kind;
    out.posture = layer.posture;
    out.defaults = layer.defaults;
    out.files = Paths(layer.files, *layer.document);
    out.unix_sockets = Paths(layer.unix_sockets, *layer.document);
    out.programs = Programs(layer.commands, *layer.document);
    out.v4 = Destinations(layer.network, *layer.document, false).Take();
    out.v6 = Destinations(layer.network, *layer.document, true).Take();
    for (const NetworkRule& rule : layer.network.rules()) {
      for (const Glob& glob : rule.names) out.names.push_back(glob.ToString());
    }
    for (const KernelPath& path : out.files) {
      if ((path.match == Match::kExact || path.match == Match::kTree) && !path.text.empty())
        view.roots.push_back(path.text);
    }
  }
  std::sort(view.roots.begin(), view.roots.end());
  view.roots.erase(std::unique(view.roots.begin(), view.roots.end()), view.roots.end());
  return view;
}

std::set<std::pair<size_t, uint32_t>> FileRulesInPart(const KernelView& view) {
  std::set<std::pair<size_t, uint32_t>> rules;
  std::vector<const KernelPath*> final;  // of the built-in layer, which comes before all others
  for (size_t layer = 0; layer < view.layers.size(); ++layer) {
    std::vector<const KernelPath*> before = final;
    for (const KernelPath& path : view.layers[layer].files) {
      const bool held_up = std::any_of(before.begin(), before.end(), [&](const KernelPath* unsure) {
        return (unsure->operations & path.operations) != 0 && MayMeet(Where(*unsure), Where(path));
      });
      const bool asks = path.match == Match::kUserSpace;
      if (held_up || asks) rules.insert({layer, path.rank});
      if (asks) before.push_back(&path);
    }
    if (layer == 0) final = std::move(before);
  }
  return rules;
}

std::optional<Decision> KernelJudgePath(const KernelLayer& layer, const std::vector<KernelPath>& list,
                                        absl::string_view path, uint32_t operation, DefaultFor fallback) {
  for (const KernelPath& entry : list) {
    if (!(entry.operations & operation) || !Matches(entry, path)) continue;
    // Another pattern of the same rule may still decide without help.
    if (entry.match != Match::kUserSpace && !entry.conditional) return entry.decision;
    const bool certain = std::any_of(list.begin(), list.end(), [&](const KernelPath& other) {
      return other.rank == entry.rank && other.match != Match::kUserSpace && !other.conditional &&
             Matches(other, path);
    });
    if (certain) return entry.decision;
    return std::nullopt;
  }
  return layer.defaults[static_cast<size_t>(fallback)];
}

std::optional<Decision> KernelJudgeAddress(const KernelLayer& layer, const Address& address, uint16_t port,
                                           uint8_t protocol) {
  const std::vector<KernelPrefix>& nodes = address.v6 ? layer.v6 : layer.v4;
  int at = -1;
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].prefix.Contains(address) && (at < 0 || nodes[i].prefix.length >= nodes[at].prefix.length))
      at = static_cast<int>(i);
  }
  const KernelDestination* best = nullptr;
  for (; at >= 0; at = nodes[at].parent) {
    for (const KernelDestination& d : nodes[at].destinations) {
      if (d.protocols != 0 && !(d.protocols & protocol)) continue;
      const bool port_fits =
          d.ports.empty() || std::any_of(d.ports.begin(), d.ports.end(),
                                         [&](const PortRange& r) { return r.low <= port && port <= r.high; });
      if (!port_fits) continue;
      // Of one rule the entry that needs no name decides.
      if (best == nullptr || d.rank < best->rank || (d.rank == best->rank && best->needs_name)) best = &d;
    }
  }
  if (best == nullptr) return layer.defaults[static_cast<size_t>(DefaultFor::kNetwork)];
  if (best->needs_name) return std::nullopt;
  return best->decision;
}

}  // namespace agentmon::policy
