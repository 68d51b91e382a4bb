#include "daemon/enforce/network_rules.h"

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/policy/evaluate.h"
#include "common/policy/kernel_view.h"

namespace agentmon {
namespace {

using policy::CompiledLayer;
using policy::Decision;
using policy::KernelDestination;
using policy::KernelPrefix;
using policy::LayerKind;
using policy::Posture;
using policy::Prefix;

constexpr size_t kMostLayers = 250;  // a layer's index is a byte
constexpr uint8_t kNoLayer = 254;    // of what stands where nothing has a say

bool Stops(Decision decision) {
  return policy::Strictness(decision) >= policy::Strictness(Decision::kRedirect);  // nobody to ask
}

absl::Status TooMany(absl::string_view what) {
  return absl::ResourceExhaustedError(absl::StrCat("too many network rules: ", what));
}

bool OnlyRecords(const CompiledLayer& layer) {
  return layer.kind != LayerKind::kBuiltin &&
         (layer.posture == Posture::kMonitor || layer.posture == Posture::kWarn);
}

bool IsIsolated(const CompiledLayer& layer) {
  return layer.kind != LayerKind::kBuiltin && layer.posture == Posture::kIsolate;
}

bool IsCatchAll(const am_net_rule& rule) {
  return rule.low == 0 && rule.high == UINT16_MAX && rule.protocols == 0 && rule.until_ns == 0;
}

bool SameButTime(const am_net_rule& a, const am_net_rule& b) {
  return a.rule == b.rule && a.low == b.low && a.high == b.high && a.protocols == b.protocols;
}

// Of one layer, as it stands in every list.
struct Layer {
  uint8_t index;
  bool builtin, isolated, denies_unsaid;
  const std::vector<KernelPrefix>* nodes;

  am_net_rule Rule(uint32_t rule, bool deny) const {
    am_net_rule out{};
    out.rule = rule;
    out.high = UINT16_MAX;
    out.layer = index;
    out.flags = (deny ? AM_NET_RULE_DENY : 0) | (builtin ? AM_NET_RULE_FINAL : 0);
    return out;
  }
  // One for each range of ports.
  void Add(uint32_t index_of_rule, Decision decision, const std::vector<policy::PortRange>& ports,
           uint8_t protocols, int64_t until_ns, std::vector<am_net_rule>& out) const {
    am_net_rule rule = Rule(index_of_rule, Stops(decision));
    rule.protocols = protocols;
    rule.until_ns = static_cast<uint64_t>(until_ns);
    if (ports.empty()) out.push_back(rule);
    for (const policy::PortRange& range : ports) {
      rule.low = range.low;
      rule.high = range.high;
      out.push_back(rule);
    }
  }
};

std::vector<Layer> LayersOf(const policy::Snapshot& snapshot, const policy::KernelView& view, bool v6) {
  std::vector<Layer> layers;
  for (size_t i = 0; i < snapshot.layers().size(); ++i) {
    const CompiledLayer& layer = snapshot.layers()[i];
    if (OnlyRecords(layer)) continue;
    const Decision unsaid = layer.defaults[static_cast<size_t>(policy::DefaultFor::kNetwork)];
    layers.push_back({static_cast<uint8_t>(i), layer.kind == LayerKind::kBuiltin, IsIsolated(layer),
                      Stops(unsaid), v6 ? &view.layers[i].v6 : &view.layers[i].v4});
  }
  return layers;
}

// Rules of one layer, in order, without those that another one always comes before.
void AddInOrder(std::vector<am_net_rule>& rules, const Layer& layer, std::vector<am_net_rule>& list) {
  std::stable_sort(rules.begin(), rules.end(),
                   [](const am_net_rule& a, const am_net_rule& b) { return a.rule < b.rule; });
  const size_t begin = list.size();
  for (const am_net_rule& rule : rules) {
    const bool known = std::any_of(list.begin() + static_cast<ptrdiff_t>(begin), list.end(),
                                   [&](const am_net_rule& r) { return SameButTime(r, rule) && !r.until_ns; });
    if (!known) list.push_back(rule);
    if (IsCatchAll(rule)) return;
  }
  if (layer.denies_unsaid) list.push_back(layer.Rule(AM_NET_BY_DEFAULT, true));
}

// A walk of nothing would look like a list that is missing.
std::vector<am_net_rule> NeverEmpty(std::vector<am_net_rule> list) {
  if (list.empty())
    list.push_back(Layer{kNoLayer, true, false, false, nullptr}.Rule(AM_NET_BY_DEFAULT, false));
  return list;
}

// Makes the lists of one family. Prefixes and the nodes of all layers are in the order of a walk through the
// tree, so that the nodes that hold a prefix are a stack.
class FamilyCompiler {
 public:
  FamilyCompiler(std::vector<Layer> layers, NetworkRules& out)
      : layers_(std::move(layers)), out_(out), open_(layers_.size()), next_(layers_.size()) {}

  absl::Status Run(std::vector<NetworkRules::Node>& nodes) {
    std::vector<Prefix> prefixes;
    for (const Layer& layer : layers_) {
      for (const KernelPrefix& node : *layer.nodes) {
        const bool any = std::any_of(node.destinations.begin(), node.destinations.end(),
                                     [](const KernelDestination& d) { return !d.needs_name; });
        if (any || node.prefix.length == 0) prefixes.push_back(node.prefix);
      }
    }
    std::sort(prefixes.begin(), prefixes.end(), Before);
    prefixes.erase(std::unique(prefixes.begin(), prefixes.end(),
                               [](const Prefix& a, const Prefix& b) {
                                 return a.length == b.length && a.address == b.address;
                               }),
                   prefixes.end());
    if (prefixes.size() > AM_NET_PREFIXES_MAX / 4) return TooMany("prefixes");
    for (const Prefix& prefix : prefixes) {
      ASSIGN_OR_RETURN(const am_net_list list, Put(ListAt(prefix)));
      nodes.push_back({prefix, list});
    }
    return absl::OkStatus();
  }

 private:
  static bool Before(const Prefix& a, const Prefix& b) {
    return std::tie(a.address, a.length) < std::tie(b.address, b.length);
  }
  static bool Holds(const Prefix& outer, const Prefix& inner) {
    return outer.length <= inner.length && outer.Contains(inner.address);
  }

  std::vector<am_net_rule> ListAt(const Prefix& prefix) {
    std::vector<am_net_rule> list;
    for (size_t i = 0; i < layers_.size(); ++i) {
      const Layer& layer = layers_[i];
      if (layer.isolated) {
        list.push_back(layer.Rule(AM_NET_BY_POSTURE, true));
        continue;
      }
      const std::vector<KernelPrefix>& nodes = *layer.nodes;
      std::vector<const KernelPrefix*>& open = open_[i];
      for (size_t& next = next_[i]; next < nodes.size() && !Before(prefix, nodes[next].prefix); ++next) {
        while (!open.empty() && !Holds(open.back()->prefix, nodes[next].prefix)) open.pop_back();
        open.push_back(&nodes[next]);
      }
      while (!open.empty() && !Holds(open.back()->prefix, prefix)) open.pop_back();
      std::vector<am_net_rule> rules;
      for (const KernelPrefix* node : open) {
        for (const KernelDestination& d : node->destinations) {
          if (!d.needs_name) layer.Add(d.rank, d.decision, d.ports, d.protocols, 0, rules);
        }
      }
      AddInOrder(rules, layer, list);
    }
    return NeverEmpty(std::move(list));
  }

  // Equal lists are kept once.
  absl::StatusOr<am_net_list> Put(const std::vector<am_net_rule>& list) {
    if (list.size() > AM_NET_LIST_MAX) return TooMany("for one address");
    const std::string key(reinterpret_cast<const char*>(list.data()), list.size() * sizeof(am_net_rule));
    const auto found = known_.find(key);
    if (found != known_.end()) return found->second;
    if (out_.rules.size() + list.size() > AM_NET_RULES_MAX / 4) return TooMany("in all");
    const am_net_list at{static_cast<uint32_t>(out_.rules.size()), static_cast<uint32_t>(list.size())};
    out_.rules.insert(out_.rules.end(), list.begin(), list.end());
    known_[key] = at;
    return at;
  }

  const std::vector<Layer> layers_;
  NetworkRules& out_;
  std::vector<std::vector<const KernelPrefix*>> open_;  // of each layer: the nodes that hold the prefix
  std::vector<size_t> next_;
  absl::flat_hash_map<std::string, am_net_list> known_;
};

template <typename T>
void AppendBytes(const T& value, std::string& out) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

void DescribeNames(const policy::NetworkRule& rule, const CompiledLayer& layer, std::string& out) {
  absl::StrAppend(&out, "\n", layer.name, " ", rule.rule, " ", Stops(layer.rule(rule.rule).decision), " ",
                  rule.protocols);
  for (const policy::Glob& glob : rule.names) absl::StrAppend(&out, " ", glob.ToString());
  for (const Prefix& prefix : rule.prefixes) absl::StrAppend(&out, " ", policy::ToString(prefix));
  for (const policy::PortRange& range : rule.ports) absl::StrAppend(&out, " ", range.low, "-", range.high);
}

}  // namespace

std::string NetworkRules::Fingerprint() const {
  std::string out;
  AppendBytes(stops, out);
  AppendBytes(stops_unsaid, out);
  for (const am_net_rule& rule : rules) AppendBytes(rule, out);
  for (const auto* nodes : {&v4, &v6}) {
    AppendBytes(nodes->size(), out);
    for (const Node& node : *nodes) {
      AppendBytes(node.prefix.address.bytes, out);
      AppendBytes(node.prefix.length, out);
      AppendBytes(node.list, out);
    }
  }
  return absl::StrCat(out, names);
}

absl::StatusOr<NetworkRules> CompileNetworkRules(const policy::Snapshot& snapshot) {
  if (snapshot.layers().size() > kMostLayers) return TooMany("layers of a policy");
  NetworkRules out;
  const policy::KernelView view = policy::MakeKernelView(snapshot);
  RETURN_IF_ERROR(FamilyCompiler(LayersOf(snapshot, view, false), out).Run(out.v4));
  RETURN_IF_ERROR(FamilyCompiler(LayersOf(snapshot, view, true), out).Run(out.v6));
  for (const CompiledLayer& layer : snapshot.layers()) {
    if (OnlyRecords(layer) || layer.kind == LayerKind::kBuiltin) continue;
    const Decision unsaid = layer.defaults[static_cast<size_t>(policy::DefaultFor::kNetwork)];
    out.stops_unsaid = out.stops_unsaid || IsIsolated(layer) || Stops(unsaid);
    out.stops = out.stops || out.stops_unsaid;
    for (const policy::NetworkRule& rule : layer.network.rules()) {
      out.stops = out.stops || Stops(layer.rule(rule.rule).decision);
      if (!rule.restricts_name) continue;
      out.speaks_of_names = true;
      DescribeNames(rule, layer, out.names);
    }
  }
  return out;
}

absl::StatusOr<std::vector<am_net_rule>> ListForNames(const NetworkRules& rules,
                                                      const policy::Snapshot& snapshot,
                                                      const policy::Address& address,
                                                      absl::Span<const OpenName> names) {
  const absl::Span<const am_net_rule> base = ListOf(rules, address);
  std::vector<am_net_rule> list;
  size_t at = 0;
  for (size_t i = 0; i < snapshot.layers().size(); ++i) {
    const CompiledLayer& layer = snapshot.layers()[i];
    if (OnlyRecords(layer)) continue;
    std::vector<am_net_rule> own;
    for (; at < base.size() && base[at].layer == i; ++at) own.push_back(base[at]);
    const Layer shape{static_cast<uint8_t>(i), layer.kind == LayerKind::kBuiltin, false, false, nullptr};
    for (const policy::NetworkRule& rule : layer.network.rules()) {
      if (!rule.restricts_name || IsIsolated(layer)) continue;
      const bool inside =
          rule.prefixes.empty() || std::any_of(rule.prefixes.begin(), rule.prefixes.end(),
                                               [&](const Prefix& p) { return p.Contains(address); });
      if (!inside) continue;
      int64_t until = 0;
      for (const OpenName& open : names) {
        const bool matches = std::any_of(rule.names.begin(), rule.names.end(),
                                         [&](const policy::Glob& glob) { return glob.Matches(open.name); });
        if (matches) until = std::max(until, open.until_ns);
      }
      if (until == 0) continue;
      shape.Add(rule.rule, layer.rule(rule.rule).decision, rule.ports, rule.protocols, until, own);
    }
    // Its default is among them already, and its index is behind all rules.
    AddInOrder(own, shape, list);
  }
  if (list.size() > AM_NET_LIST_MAX) return TooMany("for one address");
  return NeverEmpty(std::move(list));
}

NetworkAnswer WalkRules(absl::Span<const am_net_rule> list, uint16_t port, uint8_t protocol,
                        uint64_t now_boot_ns) {
  NetworkAnswer answer;
  std::optional<uint8_t> decided;
  for (const am_net_rule& rule : list) {
    if (decided == rule.layer) continue;
    if (rule.protocols != 0 && (rule.protocols & protocol) == 0) continue;
    if (port < rule.low || port > rule.high) continue;
    if (rule.until_ns != 0 && now_boot_ns >= rule.until_ns) continue;
    answer.layer = rule.layer;
    answer.rule = rule.rule;
    answer.denied = (rule.flags & AM_NET_RULE_DENY) != 0;
    if (answer.denied || (rule.flags & AM_NET_RULE_FINAL) != 0) return answer;
    decided = rule.layer;
  }
  return answer;
}

absl::Span<const am_net_rule> ListOf(const NetworkRules& rules, const policy::Address& address) {
  const NetworkRules::Node* best = nullptr;
  for (const NetworkRules::Node& node : address.v6 ? rules.v6 : rules.v4) {
    if (node.prefix.Contains(address) && (best == nullptr || node.prefix.length >= best->prefix.length))
      best = &node;
  }
  if (best == nullptr) return {};
  return absl::MakeConstSpan(rules.rules).subspan(best->list.first, best->list.count);
}

}  // namespace agentmon
