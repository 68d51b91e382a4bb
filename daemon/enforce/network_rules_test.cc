// The lists that the kernel walks say what Evaluate says.
//
//   AGENTMON_PROPERTY_CASES=1000000 daemon_enforce_test "[property]"     a long run
//   AGENTMON_PROPERTY_SEED=N                                             again with a seed that was printed
#include "daemon/enforce/network_rules.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <random>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/policy/evaluate.h"
#include "common/policy/testing/random.h"
#include "common/policy/testing/snapshots.h"

namespace agentmon {
namespace {

using policy::LayerKind;
using policy::TestLayer;

constexpr char kHead[] = "version: 1\nname: x\n";

TestLayer Layer(LayerKind kind, absl::string_view text) {
  return {kind, absl::StrCat(kHead, text), absl::StrCat(policy::LayerKindName(kind), ".yaml")};
}

policy::Address At(absl::string_view text) { return policy::Reached(*policy::ParseAddress(text)); }

NetworkAnswer Ask(const policy::Snapshot& snapshot, absl::string_view address, uint16_t port,
                  uint8_t protocol = policy::kTcp) {
  const auto rules = CompileNetworkRules(snapshot);
  REQUIRE(rules.ok());
  return WalkRules(ListOf(*rules, At(address)), port, protocol, 0);
}

TEST_CASE("a deny of a wider prefix comes before an allow of a narrower one when it stands first") {
  const auto first = policy::MakeSnapshot({Layer(LayerKind::kBase, R"(
network_rules:
  - {name: wide, cidrs: [10.0.0.0/8], decision: deny}
  - {name: narrow, cidrs: [10.1.2.3], decision: allow}
)")});
  CHECK(Ask(*first, "10.1.2.3", 80).denied);
  CHECK(Ask(*first, "10.1.2.3", 80).rule == 0);
  const auto last = policy::MakeSnapshot({Layer(LayerKind::kBase, R"(
network_rules:
  - {name: narrow, cidrs: [10.1.2.3], decision: allow}
  - {name: wide, cidrs: [10.0.0.0/8], decision: deny}
)")});
  CHECK_FALSE(Ask(*last, "10.1.2.3", 80).denied);
  CHECK(Ask(*last, "10.1.2.4", 80).rule == 1);
  CHECK(Ask(*last, "11.0.0.1", 80).rule == AM_NET_BY_DEFAULT);
}

TEST_CASE("UDP is not taken for TCP, and a range of ports has two ends") {
  const auto snapshot = policy::MakeSnapshot({Layer(LayerKind::kBase, R"(
network_rules:
  - {name: web, cidrs: [127.0.0.2], ports: ["8000-8010", 443], protocol: tcp, decision: allow}
)")});
  for (const uint16_t port : {8000, 8005, 8010, 443}) CHECK_FALSE(Ask(*snapshot, "127.0.0.2", port).denied);
  for (const uint16_t port : {7999, 8011, 442, 0}) CHECK(Ask(*snapshot, "127.0.0.2", port).denied);
  CHECK(Ask(*snapshot, "127.0.0.2", 443, policy::kUdp).denied);
  CHECK(Ask(*snapshot, "127.0.0.2", 443, 0).denied);
}

TEST_CASE("layers that only record are not in the lists, and isolate denies everything") {
  const TestLayer open = Layer(LayerKind::kBase, "defaults: {network: allow}\n");
  const auto monitored = policy::MakeSnapshot(
      {open,
       Layer(LayerKind::kUser, "posture: monitor\nnetwork_rules: [{cidrs: [0.0.0.0/0], decision: deny}]\n")});
  CHECK_FALSE(Ask(*monitored, "192.0.2.1", 80).denied);
  CHECK_FALSE(CompileNetworkRules(*monitored)->stops);
  const auto isolated = policy::MakeSnapshot({open, Layer(LayerKind::kUser, "posture: isolate\n")});
  CHECK(Ask(*isolated, "192.0.2.1", 80).rule == AM_NET_BY_POSTURE);
  CHECK(Ask(*isolated, "::1", 80).denied);
  CHECK(CompileNetworkRules(*isolated)->stops_unsaid);
}

TEST_CASE("a rule on names matches nothing until a name has opened an address, and only for its time") {
  const auto snapshot = policy::MakeSnapshot({Layer(LayerKind::kBase, R"(
network_rules:
  - {name: bad, domains: ["bad.example.com"], decision: deny}
  - {name: site, domains: ["*.example.com"], ports: [443], decision: allow}
  - {name: near, domains: ["*.example.com"], cidrs: [10.0.0.0/8], decision: allow}
)")});
  const auto rules = CompileNetworkRules(*snapshot);
  REQUIRE(rules.ok());
  CHECK(rules->speaks_of_names);
  CHECK(Ask(*snapshot, "192.0.2.1", 443).denied);
  const auto list =
      ListForNames(*rules, *snapshot, At("192.0.2.1"), std::vector<OpenName>{{"a.example.com", 100}});
  REQUIRE(list.ok());
  CHECK_FALSE(WalkRules(*list, 443, policy::kTcp, 99).denied);
  CHECK(WalkRules(*list, 443, policy::kTcp, 100).denied);
  CHECK(WalkRules(*list, 80, policy::kTcp, 99).denied);
  const auto near =
      ListForNames(*rules, *snapshot, At("10.0.0.9"), std::vector<OpenName>{{"a.example.com", 100}});
  CHECK_FALSE(WalkRules(*near, 80, policy::kTcp, 99).denied);
  // Of two names that lead to one address the rule that comes first decides.
  const auto both = ListForNames(*rules, *snapshot, At("192.0.2.1"),
                                 std::vector<OpenName>{{"a.example.com", 100}, {"bad.example.com", 50}});
  CHECK(WalkRules(*both, 443, policy::kTcp, 49).rule == 0);
  CHECK(WalkRules(*both, 443, policy::kTcp, 49).denied);
  CHECK_FALSE(WalkRules(*both, 443, policy::kTcp, 50).denied);
}

TEST_CASE("a deny by name is not lost where nothing else has a say") {
  const auto snapshot = policy::MakeSnapshot({Layer(LayerKind::kBase, R"(
defaults: {network: allow}
network_rules: [{name: bad, domains: ["bad.example.com"], decision: deny}]
)")});
  const auto rules = CompileNetworkRules(*snapshot);
  const auto list =
      ListForNames(*rules, *snapshot, At("192.0.2.1"), std::vector<OpenName>{{"bad.example.com", 100}});
  CHECK(WalkRules(*list, 443, policy::kTcp, 1).denied);
  CHECK_FALSE(WalkRules(*list, 443, policy::kTcp, 100).denied);
  CHECK_FALSE(ListForNames(*rules, *snapshot, At("192.0.2.1"), {})->empty());
}

TEST_CASE("what does not fit is said, and nothing of it is left out") {
  std::string text = "network_rules:\n";
  for (int i = 0; i < 5000; ++i)
    absl::StrAppend(&text, "  - {ports: [", i + 1, "], protocol: udp, decision: deny}\n");
  const auto snapshot = policy::MakeSnapshot({Layer(LayerKind::kBase, text)});
  CHECK(absl::IsResourceExhausted(CompileNetworkRules(*snapshot).status()));
}

TEST_CASE("equal lists are kept once, and equal policies have equal fingerprints") {
  std::string text = "network_rules:\n";
  for (int i = 0; i < 200; ++i)
    absl::StrAppend(&text, "  - {name: r", i, ", cidrs: [10.", i, ".0.0/16], decision: deny}\n");
  absl::StrAppend(&text, "  - {name: web, ports: [80, 443], decision: allow}\n");
  const auto one = CompileNetworkRules(*policy::MakeSnapshot({Layer(LayerKind::kBase, text)}));
  REQUIRE(one.ok());
  CHECK(one->v4.size() > 200);
  CHECK(one->rules.size() < 800);
  const auto same = CompileNetworkRules(*policy::MakeSnapshot({Layer(LayerKind::kBase, text)}));
  CHECK(one->Fingerprint() == same->Fingerprint());
  const auto other = CompileNetworkRules(
      *policy::MakeSnapshot({Layer(LayerKind::kBase, text + "defaults: {network: allow}\n")}));
  CHECK(one->Fingerprint() != other->Fingerprint());
}

constexpr const char* kCidrs[] = {"10.0.0.0/8", "10.1.0.0/16", "10.1.2.3",     "0.0.0.0/0",    "::/0",
                                  "fd00::/8",   "127.0.0.0/9", "10.128.0.0/9", "fd00::5",      "::1",
                                  "127.0.0.1",  "10.1.2.0/24", "8.0.0.0/7",    "2001:db8::/32"};
constexpr const char* kAddresses[] = {
    "10.1.2.3", "10.1.9.9", "10.200.0.1",  "127.0.0.1",       "127.200.0.1", "8.8.8.8", "fd00::5",
    "fd00::6",  "::1",      "2001:db8::1", "::ffff:10.1.2.3", "::",          "0.0.0.0", "64:ff9b::a01:203"};
constexpr const char* kPatterns[] = {"a.example", "*.example", "**.example", "**",
                                     "localhost", "10.1.2.3",  "*"};
constexpr const char* kNames[] = {"a.example", "b.a.example", "other.test", ""};
constexpr const char* kPorts[] = {"22", "443", "400-500", "1-65535"};
constexpr const char* kDecisions[] = {"allow", "allow", "deny", "deny", "ask", "audit"};
constexpr const char* kPostures[] = {"monitor", "warn", "enforce", "enforce", "enforce", "isolate"};

std::string RandomLayer(policy::Random& r, bool base) {
  std::string text;
  if (r.Below(3) == 0) absl::StrAppend(&text, "posture: ", r.Of(kPostures), "\n");
  if (base && r.Below(2) == 0) absl::StrAppend(&text, "defaults: {network: ", r.Of(kDecisions), "}\n");
  const uint32_t rules = r.Below(8);
  if (rules > 0) absl::StrAppend(&text, "network_rules:\n");
  for (uint32_t i = 0; i < rules; ++i) {
    absl::StrAppend(&text, "  - {decision: ", r.Of(kDecisions));
    if (r.Below(3) != 0) absl::StrAppend(&text, ", cidrs: ", r.Some(kCidrs));
    if (r.Below(3) == 0) absl::StrAppend(&text, ", domains: ", r.Some(kPatterns));
    if (r.Below(2) == 0) absl::StrAppend(&text, ", ports: ", r.Some(kPorts));
    if (r.Below(3) == 0) absl::StrAppend(&text, ", protocol: ", r.Below(2) == 0 ? "tcp" : "udp");
    absl::StrAppend(&text, "}\n");
  }
  return text;
}

uint64_t Setting(const char* name, uint64_t otherwise) {
  uint64_t value;
  const char* text = std::getenv(name);
  return text != nullptr && absl::SimpleAtoi(text, &value) ? value : otherwise;
}

TEST_CASE("random policies: the lists and Evaluate agree on answer, layer and rule", "[property]") {
  const uint64_t seed = Setting("AGENTMON_PROPERTY_SEED", std::random_device()());
  const uint64_t cases = Setting("AGENTMON_PROPERTY_CASES", 20'000);
  INFO("AGENTMON_PROPERTY_SEED=" << seed);
  policy::Random r(seed);
  uint64_t denied = 0, allowed = 0;
  for (uint64_t done = 0; done < cases;) {
    std::vector<TestLayer> layers = {Layer(LayerKind::kBase, RandomLayer(r, true))};
    if (r.Below(2) == 0) layers.push_back(Layer(LayerKind::kFloor, RandomLayer(r, false)));
    if (r.Below(2) == 0) layers.push_back(Layer(LayerKind::kUser, RandomLayer(r, false)));
    if (r.Below(3) == 0) layers.push_back(Layer(LayerKind::kSession, RandomLayer(r, false)));
    const auto snapshot = policy::MakeSnapshot(layers);
    const auto rules = CompileNetworkRules(*snapshot);
    REQUIRE(rules.ok());
    for (int i = 0; i < 50; ++i, ++done) {
      const std::string text = r.Of(kAddresses), name = r.Of(kNames);
      const policy::Address address = *policy::ParseAddress(text);
      const uint16_t port = std::array<uint16_t, 5>{22, 443, 450, 53, 8080}[r.Below(5)];
      const uint8_t protocol = std::array<uint8_t, 3>{policy::kTcp, policy::kUdp, 0}[r.Below(3)];
      const policy::Subject subject = policy::ConnectSubject(address, port, protocol, name);
      const policy::Verdict want = policy::Evaluate(*snapshot, subject, {});
      const policy::Address reached = policy::Reached(address);
      std::vector<am_net_rule> list(ListOf(*rules, reached).begin(), ListOf(*rules, reached).end());
      if (!name.empty()) list = *ListForNames(*rules, *snapshot, reached, std::vector<OpenName>{{name, 10}});
      const NetworkAnswer got = WalkRules(list, port, protocol, 5);
      INFO(layers[0].text << "\n"
                          << (layers.size() > 1 ? layers[1].text : "") << "\n"
                          << (layers.size() > 2 ? layers[2].text : ""));
      INFO(text << " port " << port << " protocol " << int{protocol} << " name " << name);
      REQUIRE(got.denied == want.Stops());
      ++(got.denied ? denied : allowed);
      if (!got.denied) continue;
      REQUIRE(got.layer == want.layer);
      if (want.rule != nullptr)
        REQUIRE(&snapshot->layers()[got.layer].rule(got.rule) == want.rule);
      else
        REQUIRE((got.rule == AM_NET_BY_DEFAULT || got.rule == AM_NET_BY_POSTURE));
    }
  }
  CHECK(denied > cases / 10);
  CHECK(allowed > cases / 10);
}

}  // namespace
}  // namespace agentmon
