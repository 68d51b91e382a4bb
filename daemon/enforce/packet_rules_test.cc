// What sets of nftables hold denies what the lists of the programs deny.
#include "daemon/enforce/packet_rules.h"

#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <random>

#include "absl/strings/str_cat.h"
#include "common/policy/testing/random.h"
#include "common/policy/testing/snapshots.h"

namespace agentmon {
namespace {

using policy::LayerKind;
using policy::TestLayer;

TestLayer Layer(LayerKind kind, absl::string_view text) {
  return {kind, absl::StrCat("version: 1\nname: x\n", text),
          absl::StrCat(policy::LayerKindName(kind), ".yaml")};
}

NetworkRules Compile(const std::vector<TestLayer>& layers) {
  auto rules = CompileNetworkRules(*policy::MakeSnapshot(layers));
  REQUIRE(rules.ok());
  return *std::move(rules);
}

bool Holds(const AddressRange& range, bool v6, absl::uint128 number) {
  return range.v6 == v6 && range.low <= number && number <= range.high;
}

// How many of the ranges say that it is denied: the kernel wants them not to overlap.
int Denials(const PacketRules& rules, bool v6, absl::uint128 number, uint8_t protocol, uint16_t port) {
  int count = 0;
  for (const AddressRange& range : rules.all) count += Holds(range, v6, number);
  const bool ported = protocol == IPPROTO_TCP || protocol == IPPROTO_UDP;
  for (const AddressRange& range : rules.other) count += !ported && Holds(range, v6, number);
  for (const DeniedRange& range : rules.some) {
    count += range.protocol == protocol && range.ports.low <= port && port <= range.ports.high &&
             Holds(range.addresses, v6, number);
  }
  return count;
}

TEST_CASE("a narrower prefix is cut out of a wider one") {
  const auto rules = CompilePacketRules(Compile({Layer(LayerKind::kBase, R"(
defaults: {network: allow}
network_rules:
  - {name: one, cidrs: [10.1.2.3], decision: allow}
  - {name: wide, cidrs: [10.0.0.0/8], decision: deny}
)")}));
  REQUIRE(rules.ok());
  const auto number = [](absl::string_view text) { return AddressNumber(*policy::ParseAddress(text)); };
  const std::vector<AddressRange> v4 = {{false, number("10.0.0.0"), number("10.1.2.2")},
                                        {false, number("10.1.2.4"), number("10.255.255.255")}};
  std::vector<AddressRange> got;
  std::copy_if(rules->all.begin(), rules->all.end(), std::back_inserter(got),
               [](const AddressRange& range) { return !range.v6; });
  CHECK(got == v4);
}

TEST_CASE("a packet to an IPv4 address inside of NAT64 is denied as to the address") {
  const auto rules = CompilePacketRules(Compile({Layer(LayerKind::kBase, R"(
defaults: {network: allow}
network_rules: [{name: wide, cidrs: [10.0.0.0/8], decision: deny}]
)")}));
  REQUIRE(rules.ok());
  const absl::uint128 nat64 = absl::MakeUint128(0x0064ff9b00000000, 0);
  CHECK(Denials(*rules, true, nat64 + 0x0a000001, IPPROTO_TCP, 80) == 1);
  CHECK(Denials(*rules, true, nat64 + 0x0b000001, IPPROTO_TCP, 80) == 0);
}

TEST_CASE("too many ranges are refused, not cut") {
  std::string text = "defaults: {network: allow}\nnetwork_rules:\n";
  for (int i = 0; i < 5000; ++i)
    absl::StrAppend(&text, "  - {name: r", i, ", cidrs: [10.", i / 100, ".", 2 * (i % 100),
                    ".0/24], ports: [80], ", "protocol: tcp, decision: deny}\n");
  const auto rules = CompilePacketRules(Compile({Layer(LayerKind::kBase, text)}));
  CHECK(absl::IsResourceExhausted(rules.status()));
}

TEST_CASE("what a name opens and closes is what its list answers otherwise") {
  const auto snapshot = policy::MakeSnapshot({Layer(LayerKind::kBase, R"(
network_rules:
  - {name: bad, domains: ["bad.example.com"], ports: [443], decision: deny}
  - {name: site, domains: ["*.example.com"], ports: ["80-90", 443], protocol: tcp, decision: allow}
  - {name: all, cidrs: [192.0.2.0/24], decision: allow}
)")});
  const auto rules = CompileNetworkRules(*snapshot);
  REQUIRE(rules.ok());
  const auto named = [&](absl::string_view address, absl::string_view name) {
    const policy::Address at = *policy::ParseAddress(address);
    const auto list = ListForNames(*rules, *snapshot, at, std::vector<OpenName>{{std::string(name), 10}});
    REQUIRE(list.ok());
    return PortsByName(*list, ListOf(*rules, at), 5);
  };
  CHECK(named("198.51.100.1", "a.example.com") ==
        std::vector<NamedPorts>{{IPPROTO_TCP, {80, 90}, false}, {IPPROTO_TCP, {443, 443}, false}});
  CHECK(named("192.0.2.1", "a.example.com").empty());
  CHECK(named("192.0.2.1", "bad.example.com") ==
        std::vector<NamedPorts>{{IPPROTO_TCP, {443, 443}, true}, {IPPROTO_UDP, {443, 443}, true}});
}

constexpr std::array kCidrs = {"10.0.0.0/8",  "10.1.0.0/16",  "10.1.2.3",  "0.0.0.0/0",
                               "127.0.0.0/8", "255.0.0.0/8",  "::/0",      "2001:db8::/32",
                               "2001:db8::7", "64:ff00::/24", "ffff::/16", "10.1.2.2/31"};
constexpr std::array kProbes = {"10.0.0.0",   "10.1.2.3",        "10.1.2.2", "10.255.255.255", "11.0.0.0",
                                "127.0.0.1",  "255.255.255.255", "0.0.0.1",  "2001:db8::7",    "2001:db8::8",
                                "64:ff9a::1", "64:ff9c::",       "ffff::1",  "fffe::1",        "::2"};
constexpr std::array kPorts = {"[22]", "['20-30', 25]", "[443, '400-500']", "['1-65535']", "['1-1024']"};

std::string RandomRules(policy::Random& r) {
  std::string text = absl::StrCat("defaults: {network: ", r.Below(2) == 0 ? "allow" : "deny", "}\n");
  const uint32_t rules = r.Below(7);
  if (rules > 0) absl::StrAppend(&text, "network_rules:\n");
  for (uint32_t i = 0; i < rules; ++i) {
    absl::StrAppend(&text, "  - {name: r", i, ", decision: ", r.Below(2) == 0 ? "allow" : "deny");
    if (r.Below(5) != 0) absl::StrAppend(&text, ", cidrs: ['", kCidrs[r.Below(kCidrs.size())], "']");
    if (r.Below(2) == 0) absl::StrAppend(&text, ", ports: ", kPorts[r.Below(kPorts.size())]);
    if (r.Below(3) == 0) absl::StrAppend(&text, ", protocol: ", r.Below(2) == 0 ? "tcp" : "udp");
    absl::StrAppend(&text, "}\n");
  }
  return text;
}

TEST_CASE("random policies: ranges and lists agree, and no two ranges overlap", "[property]") {
  const uint64_t seed = std::random_device()();
  INFO("seed " << seed);
  policy::Random r(seed);
  constexpr std::array<uint16_t, 8> kSome = {0, 1, 22, 25, 443, 450, 1024, 65535};
  for (int round = 0; round < 300; ++round) {
    std::vector<TestLayer> layers = {Layer(LayerKind::kBase, RandomRules(r))};
    if (r.Below(2) == 0) layers.push_back(Layer(LayerKind::kUser, RandomRules(r)));
    const NetworkRules lists = Compile(layers);
    const auto rules = CompilePacketRules(lists);
    REQUIRE(rules.ok());
    for (const char* text : kProbes) {
      const policy::Address address = *policy::ParseAddress(text);
      for (const uint16_t port : kSome) {
        for (const auto& [protocol, bit] : {std::pair<uint8_t, uint8_t>{IPPROTO_TCP, AM_NET_TCP},
                                            {IPPROTO_UDP, AM_NET_UDP},
                                            {IPPROTO_ICMP, 0}}) {
          const bool want = WalkRules(ListOf(lists, address), bit == 0 ? 0 : port, bit, 0).denied;
          INFO(layers.back().text << layers.front().text << text << " " << port << " " << int{protocol});
          REQUIRE(Denials(*rules, address.v6, AddressNumber(address), protocol, port) == (want ? 1 : 0));
        }
      }
    }
  }
}

}  // namespace
}  // namespace agentmon
