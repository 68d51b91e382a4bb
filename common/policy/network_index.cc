#include "common/policy/network_index.h"

#include <algorithm>

#include "absl/strings/match.h"

namespace agentmon::policy {
namespace {

constexpr size_t kMostPorts = 64;  // wider ranges are not spelled out in the index

bool Contains(const std::vector<Prefix>& prefixes, const Address& address) {
  return std::any_of(prefixes.begin(), prefixes.end(), [&](const Prefix& p) { return p.Contains(address); });
}

Address Masked(Address address, int length) {
  for (int byte = length / 8; byte < 16; ++byte) {
    const int keep = byte == length / 8 ? length % 8 : 0;
    address.bytes[byte] &= static_cast<uint8_t>(0xff00 >> keep);
  }
  return address;
}

// "github.com" of *.github.com: what a name that matches must end with, after a dot.
absl::string_view LiteralSuffix(const Glob& glob) {
  const GlobToken& last = glob.tokens().back();
  if (last.type != GlobToken::Type::kLiteral) return {};
  const absl::string_view text = last.literal;
  const size_t dot = text.find('.');
  return dot == absl::string_view::npos ? absl::string_view() : text.substr(dot + 1);
}

bool NameMatches(const NetworkRule& rule, const Subject& subject, absl::string_view name) {
  if (!rule.restricts_name) return true;
  if (!name.empty() &&
      std::any_of(rule.names.begin(), rule.names.end(), [&](const Glob& g) { return g.Matches(name); })) {
    return true;
  }
  return subject.address && Contains(rule.named_addresses, *subject.address);
}

bool PrefixMatches(const NetworkRule& rule, const Subject& subject) {
  if (rule.prefixes.empty()) return true;
  if (subject.network_op != NetworkOp::kQuery)
    return subject.address && Contains(rule.prefixes, *subject.address);
  // A query has no address yet: only "every address" is said of it.
  return std::any_of(rule.prefixes.begin(), rule.prefixes.end(),
                     [](const Prefix& p) { return p.length == 0; });
}

// A query has neither port nor protocol: what allows some ports allows to ask, what stops some does not
// forbid it.
bool PortMatches(const NetworkRule& rule, const Subject& subject) {
  if (subject.network_op == NetworkOp::kQuery)
    return !rule.stops || (rule.ports.empty() && rule.protocols == 0);
  if (rule.protocols != 0 && !(rule.protocols & subject.protocol)) return false;
  return rule.ports.empty() || std::any_of(rule.ports.begin(), rule.ports.end(), [&](const PortRange& r) {
           return r.low <= subject.port && subject.port <= r.high;
         });
}

}  // namespace

void NetworkIndex::AddPrefix(const Prefix& prefix, Entry entry) {
  Family& family = prefix.address.v6 ? v6_ : v4_;
  if (std::find(family.lengths.begin(), family.lengths.end(), prefix.length) == family.lengths.end()) {
    family.lengths.push_back(prefix.length);
    std::sort(family.lengths.begin(), family.lengths.end());
  }
  family.lists[{prefix.address.bytes, prefix.length}].push_back(entry);
}

void NetworkIndex::AddNames(const NetworkRule& rule, uint32_t index) {
  for (uint32_t i = 0; i < rule.names.size(); ++i) {
    const Glob& glob = rule.names[i];
    const Entry entry{index, Entry::kGlob, i};
    if (glob.IsLiteral())
      by_name_[std::string(glob.literal())].push_back({index, Entry::kName});
    else if (const absl::string_view suffix = LiteralSuffix(glob); !suffix.empty())
      by_suffix_[std::string(suffix)].push_back(entry);
    else
      by_glob_.push_back(entry);
  }
  for (const Prefix& prefix : rule.named_addresses) AddPrefix(prefix, {index, Entry::kNamedAddress});
}

// Each rule is filed under the condition that says most; the look-up then checks the others.
void NetworkIndex::Add(NetworkRule rule) {
  const auto index = static_cast<uint32_t>(rules_.size());
  size_t ports = 0;
  for (const PortRange& range : rule.ports) ports += range.high - range.low + 1;
  if (rule.restricts_name) {
    AddNames(rule, index);
  } else if (!rule.prefixes.empty()) {
    bool everywhere = false;
    for (const Prefix& prefix : rule.prefixes) {
      AddPrefix(prefix, {index, Entry::kPrefix});
      everywhere = everywhere || prefix.length == 0;
    }
    if (everywhere) rest_.push_back({index, Entry::kNothing});  // said of names too
  } else if (ports > 0 && ports <= kMostPorts) {
    for (const PortRange& range : rule.ports) {
      for (uint32_t p = range.low; p <= range.high; ++p)
        by_port_[static_cast<uint16_t>(p)].push_back({index, Entry::kNothing});
    }
    by_port_[0].push_back({index, Entry::kNothing});  // queries, which have no port
  } else {
    rest_.push_back({index, Entry::kNothing});
  }
  rules_.push_back(std::move(rule));
}

bool NetworkIndex::Matches(const NetworkRule& rule, const Subject& subject, absl::string_view name) const {
  return NameMatches(rule, subject, name) && PrefixMatches(rule, subject) && PortMatches(rule, subject);
}

bool NetworkIndex::EntryMatches(const Entry& entry, const Subject& subject, absl::string_view name) const {
  const NetworkRule& rule = rules_[entry.rule];
  switch (entry.proof) {
    case Entry::kNothing:
      return Matches(rule, subject, name);
    case Entry::kGlob:
      if (!rule.names[entry.glob].Matches(name)) return false;
      [[fallthrough]];
    case Entry::kName:
    case Entry::kNamedAddress:
      return PrefixMatches(rule, subject) && PortMatches(rule, subject);
    case Entry::kPrefix:
      return PortMatches(rule, subject);
  }
  return false;
}

void NetworkIndex::Try(const List& list, const Subject& subject, absl::string_view name,
                       uint32_t& best) const {
  for (const Entry& entry : list) {
    if (entry.rule >= best) return;
    if (EntryMatches(entry, subject, name)) {
      best = entry.rule;
      return;
    }
  }
}

uint32_t NetworkIndex::Find(const Subject& subject, absl::string_view name) const {
  uint32_t best = kNone;
  if (rules_.empty()) return best;
  if (!name.empty()) {
    if (const auto found = by_name_.find(name); found != by_name_.end())
      Try(found->second, subject, name, best);
    for (size_t dot = name.find('.'); dot != absl::string_view::npos; dot = name.find('.', dot + 1)) {
      const auto found = by_suffix_.find(name.substr(dot + 1));
      if (found != by_suffix_.end()) Try(found->second, subject, name, best);
    }
    Try(by_glob_, subject, name, best);
  }
  if (subject.address && subject.network_op != NetworkOp::kQuery) {
    const Family& family = subject.address->v6 ? v6_ : v4_;
    for (const int length : family.lengths) {
      const auto found = family.lists.find({Masked(*subject.address, length).bytes, length});
      if (found != family.lists.end()) Try(found->second, subject, name, best);
    }
  }
  const uint16_t port = subject.network_op == NetworkOp::kQuery ? 0 : subject.port;
  if (const auto found = by_port_.find(port); found != by_port_.end())
    Try(found->second, subject, name, best);
  Try(rest_, subject, name, best);
  return best;
}

}  // namespace agentmon::policy
