// The network rules of a policy as lists that a program in the kernel walks: one for each prefix, complete.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "bpf/network_abi.h"
#include "common/policy/snapshot.h"

namespace agentmon {

// Immutable. Layers that only record are left out: they stop nothing. Rules that speak of names are left out
// too, until a name has opened an address.
struct NetworkRules {
  struct Node {
    policy::Prefix prefix;
    am_net_list list;  // run of `rules`
  };
  std::vector<am_net_rule> rules;  // policy is 0 in all of them
  std::vector<Node> v4, v6;        // by address and length; [0] is /0
  bool stops = false;              // something other than the built-in rules denies
  bool stops_unsaid = false;       // what no rule speaks of is denied
  bool speaks_of_names = false;
  std::string names;  // the rules that speak of them, as text

  // Equal contents, equal text.
  std::string Fingerprint() const;
};

// ResourceExhausted when an address would meet too many rules, or all of them do not fit. Pure; milliseconds
// for thousands of rules.
absl::StatusOr<NetworkRules> CompileNetworkRules(const policy::Snapshot& snapshot);

// A name that stands for an address, and until when (CLOCK_BOOTTIME).
struct OpenName {
  std::string name;  // normalised
  int64_t until_ns = 0;
};
// The list of one address under the names that have opened it. Same errors.
absl::StatusOr<std::vector<am_net_rule>> ListForNames(const NetworkRules& rules,
                                                      const policy::Snapshot& snapshot,
                                                      const policy::Address& address,
                                                      absl::Span<const OpenName> names);

// What bpf/network_judge.bpf.h makes of a list.
struct NetworkAnswer {
  bool denied = false;
  uint32_t rule = 0;
  uint8_t layer = 0;
};
NetworkAnswer WalkRules(absl::Span<const am_net_rule> list, uint16_t port, uint8_t protocol,
                        uint64_t now_boot_ns);
// The list of the longest prefix that holds this address (Reached).
absl::Span<const am_net_rule> ListOf(const NetworkRules& rules, const policy::Address& address);

}  // namespace agentmon
