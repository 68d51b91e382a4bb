// What a policy denies, as ranges of addresses and ports that do not overlap: what sets of nftables hold.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/numeric/int128.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "daemon/enforce/network_rules.h"

namespace agentmon {

struct AddressRange {
  bool v6 = false;
  absl::uint128 low = 0, high = 0;
  bool operator==(const AddressRange&) const = default;
};

struct PortSpan {
  uint16_t low = 0, high = UINT16_MAX;
  bool operator==(const PortSpan&) const = default;
};

struct DeniedRange {
  AddressRange addresses;
  uint8_t protocol = 0;  // IPPROTO_TCP or IPPROTO_UDP
  PortSpan ports;
};

// Immutable. IPv4 inside of NAT64 is among the IPv6 ranges: a packet has the address that it has.
struct PacketRules {
  std::vector<AddressRange> all;    // nothing goes there
  std::vector<AddressRange> other;  // nothing but TCP and UDP, of which `some` speaks
  std::vector<DeniedRange> some;
};

// ResourceExhausted when it would be too many ranges. Pure.
absl::StatusOr<PacketRules> CompilePacketRules(const NetworkRules& rules);

// What names change about an address: ports of one protocol that its own rules judge otherwise.
struct NamedPorts {
  uint8_t protocol = 0;  // IPPROTO_TCP or IPPROTO_UDP; of others names open nothing here
  PortSpan ports;
  bool denied = false;
  bool operator==(const NamedPorts&) const = default;
};
// `named`: of ListForNames; `base`: of ListOf.
std::vector<NamedPorts> PortsByName(absl::Span<const am_net_rule> named, absl::Span<const am_net_rule> base,
                                    uint64_t now_boot_ns);

absl::uint128 AddressNumber(const policy::Address& address);

}  // namespace agentmon
