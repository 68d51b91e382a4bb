#include "daemon/enforce/packet_rules.h"

#include <netinet/in.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

namespace agentmon {
namespace {

constexpr size_t kMostRanges = 8192;      // tens of milliseconds for the kernel
constexpr size_t kMostRulesOfOne = 1024;  // of one address: what a walk for each of its ports may cost
const absl::uint128 kNat64 = absl::MakeUint128(0x0064ff9b00000000, 0);  // 64:ff9b::/96

absl::Status TooMany() { return absl::ResourceExhaustedError("too many ranges of addresses and ports"); }

constexpr std::pair<uint8_t, uint8_t> kProtocols[] = {{IPPROTO_TCP, AM_NET_TCP}, {IPPROTO_UDP, AM_NET_UDP}};

// Where an answer can change, in order.
std::vector<uint32_t> Steps(absl::Span<const am_net_rule> list) {
  std::vector<uint32_t> steps = {0};
  for (const am_net_rule& rule : list) {
    steps.push_back(rule.low);
    if (rule.high < UINT16_MAX) steps.push_back(rule.high + 1u);
  }
  std::sort(steps.begin(), steps.end());
  steps.erase(std::unique(steps.begin(), steps.end()), steps.end());
  return steps;
}

uint16_t EndOf(const std::vector<uint32_t>& steps, size_t i) {
  return static_cast<uint16_t>(i + 1 < steps.size() ? steps[i + 1] - 1 : UINT16_MAX);
}

// What a list denies.
struct Denied {
  std::vector<PortSpan> tcp, udp;
  bool other = false;

  bool all() const {
    const std::vector<PortSpan> whole = {PortSpan()};
    return other && tcp == whole && udp == whole;
  }
};

Denied DeniedBy(absl::Span<const am_net_rule> list) {
  Denied out;
  const std::vector<uint32_t> steps = Steps(list);
  for (const auto& [unused, bit] : kProtocols) {
    std::vector<PortSpan>& ports = bit == AM_NET_TCP ? out.tcp : out.udp;
    for (size_t i = 0; i < steps.size(); ++i) {
      const auto low = static_cast<uint16_t>(steps[i]);
      if (!WalkRules(list, low, bit, 0).denied) continue;
      if (!ports.empty() && ports.back().high + 1 == low)
        ports.back().high = EndOf(steps, i);
      else
        ports.push_back({low, EndOf(steps, i)});
    }
  }
  out.other = WalkRules(list, 0, 0, 0).denied;
  return out;
}

absl::uint128 LastOf(const policy::Prefix& prefix) {
  const absl::uint128 first = AddressNumber(prefix.address);
  const int free = prefix.address.bits() - prefix.length;
  if (free == 128) return absl::Uint128Max();
  return first + ((absl::uint128(1) << free) - 1);
}

// Takes ranges in their order; those that touch become one.
class Ranges {
 public:
  explicit Ranges(bool v6) : v6_(v6) {}

  void Add(absl::uint128 low, absl::uint128 high, const Denied& denied) {
    if (denied.all()) return Join(all_, low, high);
    if (denied.other) Join(other_, low, high);
    for (const PortSpan& ports : denied.tcp) Join(some_[{IPPROTO_TCP, ports.low, ports.high}], low, high);
    for (const PortSpan& ports : denied.udp) Join(some_[{IPPROTO_UDP, ports.low, ports.high}], low, high);
  }

  void TakeInto(PacketRules& out) const {
    out.all.insert(out.all.end(), all_.begin(), all_.end());
    out.other.insert(out.other.end(), other_.begin(), other_.end());
    for (const auto& [key, ranges] : some_) {
      const auto [protocol, low, high] = key;
      for (const AddressRange& range : ranges) out.some.push_back({range, protocol, {low, high}});
    }
  }

 private:
  void Join(std::vector<AddressRange>& ranges, absl::uint128 low, absl::uint128 high) const {
    if (!ranges.empty() && low != 0 && ranges.back().high == low - 1)
      ranges.back().high = high;
    else
      ranges.push_back({v6_, low, high});
  }

  const bool v6_;
  std::vector<AddressRange> all_, other_;
  std::map<std::tuple<uint8_t, uint16_t, uint16_t>, std::vector<AddressRange>> some_;
};

struct Segment {
  absl::uint128 low, high;
  am_net_list list;
};

// The longest prefix counts: a walk over nested prefixes in their order, with those that are open on a stack.
std::vector<Segment> Flatten(const std::vector<NetworkRules::Node>& nodes) {
  std::vector<Segment> out;
  std::vector<std::pair<absl::uint128, am_net_list>> open;  // by their ends
  absl::uint128 next = 0;                                   // first address that is not in `out`
  bool done = false;
  const auto close = [&](absl::uint128 end) {
    if (!done && next <= end) out.push_back({next, end, open.back().second});
    done = done || end == absl::Uint128Max();
    if (!done && next <= end) next = end + 1;
  };
  for (const NetworkRules::Node& node : nodes) {
    const absl::uint128 first = AddressNumber(node.prefix.address);
    while (!open.empty() && open.back().first < first) {
      close(open.back().first);
      open.pop_back();
    }
    if (!open.empty() && next < first) close(first - 1);
    open.emplace_back(LastOf(node.prefix), node.list);
    next = std::max(next, first);
  }
  while (!open.empty()) {
    close(open.back().first);
    open.pop_back();
  }
  return out;
}

absl::Status AddFamily(const NetworkRules& rules, bool v6, PacketRules& out) {
  std::map<std::pair<uint32_t, uint32_t>, Denied> known;
  const auto denied_of = [&](const am_net_list& at) -> const Denied& {
    const auto [it, is_new] = known.try_emplace({at.first, at.count});
    if (is_new) it->second = DeniedBy(absl::MakeConstSpan(rules.rules).subspan(at.first, at.count));
    return it->second;
  };
  std::vector<Segment> segments = Flatten(v6 ? rules.v6 : rules.v4);
  for (const Segment& segment : segments) {
    if (segment.list.count > kMostRulesOfOne) return TooMany();
  }
  Ranges ranges(v6);
  const auto size = [&out] { return out.all.size() + out.other.size() + out.some.size(); };
  const absl::uint128 nat64_end = kNat64 + UINT32_MAX;
  for (const Segment& segment : segments) {
    const Denied& denied = denied_of(segment.list);
    if (!v6 || segment.high < kNat64 || segment.low > nat64_end) {
      ranges.Add(segment.low, segment.high, denied);
      continue;
    }
    if (segment.low < kNat64) ranges.Add(segment.low, kNat64 - 1, denied);
    if (segment.high > nat64_end) ranges.Add(nat64_end + 1, segment.high, denied);
  }
  ranges.TakeInto(out);
  if (!v6) {
    Ranges embedded(true);
    for (const Segment& segment : segments)
      embedded.Add(kNat64 + segment.low, kNat64 + segment.high, denied_of(segment.list));
    embedded.TakeInto(out);
  }
  return size() > kMostRanges ? TooMany() : absl::OkStatus();
}

}  // namespace

absl::uint128 AddressNumber(const policy::Address& address) {
  absl::uint128 number = 0;
  for (int i = 0; i < address.bits() / 8; ++i) number = number << 8 | address.bytes[static_cast<size_t>(i)];
  return number;
}

absl::StatusOr<PacketRules> CompilePacketRules(const NetworkRules& rules) {
  PacketRules out;
  for (const bool v6 : {false, true}) {
    if (absl::Status status = AddFamily(rules, v6, out); !status.ok()) return status;
  }
  return out;
}

std::vector<NamedPorts> PortsByName(absl::Span<const am_net_rule> named, absl::Span<const am_net_rule> base,
                                    uint64_t now_boot_ns) {
  std::vector<am_net_rule> both(named.begin(), named.end());
  both.insert(both.end(), base.begin(), base.end());
  const std::vector<uint32_t> steps = Steps(both);
  std::vector<NamedPorts> out;
  for (const auto& [protocol, bit] : kProtocols) {
    const size_t first = out.size();
    for (size_t i = 0; i < steps.size(); ++i) {
      const auto low = static_cast<uint16_t>(steps[i]);
      const bool denied = WalkRules(named, low, bit, now_boot_ns).denied;
      if (denied == WalkRules(base, low, bit, now_boot_ns).denied) continue;
      if (out.size() > first && out.back().denied == denied && out.back().ports.high + 1 == low)
        out.back().ports.high = EndOf(steps, i);
      else
        out.push_back({protocol, {low, EndOf(steps, i)}, denied});
    }
  }
  return out;
}

}  // namespace agentmon
