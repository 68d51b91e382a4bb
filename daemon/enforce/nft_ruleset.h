// The text of the network backstop for nft(8): one table of this instance, and in it a chain for each session
// that only packets of the session's sockets come to.
// docs/decisions/0052-nftables-behind-the-network-programs.md.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/policy/address.h"
#include "daemon/enforce/name_gate.h"
#include "daemon/enforce/nft_table.h"
#include "daemon/enforce/packet_rules.h"

namespace agentmon {

// An address that names have opened or closed, or both on some ports.
struct NamedAddress {
  std::vector<NamedPorts> ports;
  absl::Duration timeout;
};

struct NftSession {
  uint64_t cgroup_id = 0;
  std::string cgroup;   // its directory, from /sys/fs/cgroup
  uint32_t policy = 0;  // of AddPolicy; 0 = everything is stopped
  const PacketRules* rules = nullptr;
  ResolverTarget resolver;
  std::map<policy::Address, NamedAddress> names;
};

// Pure. What is no static method answers commands, each with its end of line.
class NftRuleset {
 public:
  struct Options {
    std::string table;
    uint32_t level = 0;                 // depth of the sessions' cgroups
    std::optional<uint16_t> log_group;  // of NFLOG; none: what is stopped is counted, and not told
    bool stop_routes = false;           // packets with a route or options: no program of ours stops them here
  };
  explicit NftRuleset(Options options) : options_(std::move(options)) {}

  // Nothing is left of the table, whether it was there or not.
  std::string Delete() const;
  std::string AddTable() const;
  std::string AddPolicy(uint32_t number, const PacketRules& rules) const;
  std::string RemovePolicy(uint32_t number, const PacketRules& rules) const;
  std::string AddSession(const NftSession& session) const;
  // Its rules and names in place of those that it had.
  std::string ReplaceSession(const NftSession& session) const;
  std::string AddNames(uint64_t cgroup_id, const std::map<policy::Address, NamedAddress>& names) const;
  std::string RemoveSession(uint64_t cgroup_id, absl::string_view cgroup) const;

  // What NftTable is told: the maps of a session's names, what lies in them for these, and its counter.
  static std::vector<std::string> NameMaps(uint64_t cgroup_id);
  static std::vector<NftElement> NameElements(uint64_t cgroup_id,
                                              const std::map<policy::Address, NamedAddress>& names);
  static std::string CounterOf(uint64_t cgroup_id);
  // Where its rules are: without them its packets pass.
  static std::string ChainOf(uint64_t cgroup_id);

 private:
  std::string Rules(const NftSession& session) const;
  std::string On(absl::string_view verb, absl::string_view object) const;

  const Options options_;
};

// What stands before the session's cgroup in the prefix of its log entries.
inline constexpr absl::string_view kNftLogPrefix = "agentmon ";

}  // namespace agentmon
