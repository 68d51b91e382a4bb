// Finds the first network rule that matches, without looking at every rule.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "common/policy/patterns.h"
#include "common/policy/subject.h"

namespace agentmon::policy {

struct NetworkRule {
  uint32_t rule = 0;            // index into the document's rules
  bool restricts_name = false;  // it has domains, and none of them is "**"
  std::vector<Glob> names;
  std::vector<Prefix> named_addresses;  // addresses written as domains
  std::vector<Prefix> prefixes;
  std::vector<PortRange> ports;
  uint8_t protocols = 0;
  bool stops = false;  // deny, ask, redirect: not applied to a query by a rule about ports
};

class NetworkIndex {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;
  // Rules in order.
  void Add(NetworkRule rule);
  // The first rule that matches, as an index into rules(). name: normalised.
  uint32_t Find(const Subject& subject, absl::string_view name) const;
  bool Matches(const NetworkRule& rule, const Subject& subject, absl::string_view name) const;
  const std::vector<NetworkRule>& rules() const { return rules_; }

 private:
  // A rule in a list, and which of its conditions being found there proves.
  struct Entry {
    enum Proof : uint8_t { kNothing, kName, kGlob, kNamedAddress, kPrefix };
    uint32_t rule;
    Proof proof;
    uint32_t glob = 0;  // kGlob: proven when this one of the rule's names matches
  };
  using List = std::vector<Entry>;
  struct Family {
    std::vector<int> lengths;  // that occur, longest last
    absl::flat_hash_map<std::pair<std::array<uint8_t, 16>, int>, List> lists;
  };
  void AddPrefix(const Prefix& prefix, Entry entry);
  void AddNames(const NetworkRule& rule, uint32_t index);
  bool EntryMatches(const Entry& entry, const Subject& subject, absl::string_view name) const;
  void Try(const List& list, const Subject& subject, absl::string_view name, uint32_t& best) const;

  std::vector<NetworkRule> rules_;
  absl::flat_hash_map<std::string, List> by_name_, by_suffix_;
  List by_glob_;  // names with neither a literal whole nor a literal last label
  Family v4_, v6_;
  absl::flat_hash_map<uint16_t, List> by_port_;
  List rest_;
};

}  // namespace agentmon::policy
