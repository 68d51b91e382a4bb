#include "daemon/enforce/nft_ruleset.h"

#include <netinet/in.h>

#include <algorithm>
#include <catch2/catch.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace agentmon {
namespace {

constexpr char kTable[] = "agentmon-1f";

NftRuleset Ruleset(bool stop_routes = false) { return NftRuleset({kTable, 2, uint16_t{77}, stop_routes}); }

PacketRules SomeRules() {
  PacketRules rules;
  rules.all = {{false, 0x0a000000, 0x0affffff}};
  rules.some = {{{true, absl::MakeUint128(0x20010db800000000, 1), absl::MakeUint128(0x20010db800000000, 9)},
                 IPPROTO_UDP,
                 {80, 90}}};
  return rules;
}

std::vector<std::string> Lines(const std::string& text) {
  return absl::StrSplit(text, '\n', absl::SkipEmpty());
}

TEST_CASE("every command names the instance's own table, and only one rule is on a hook") {
  const PacketRules rules = SomeRules();
  NftSession session;
  session.cgroup_id = 42;
  session.cgroup = "a/b";
  session.policy = 7;
  session.rules = &rules;
  const NftRuleset ruleset = Ruleset(true);
  const std::string all = absl::StrCat(ruleset.Delete(), ruleset.AddTable(), ruleset.AddPolicy(7, rules),
                                       ruleset.AddSession(session), ruleset.ReplaceSession(session),
                                       ruleset.RemoveSession(42, "a/b"), ruleset.RemovePolicy(7, rules));
  int hooks = 0, on_hook = 0;
  for (const std::string& line : Lines(all)) {
    INFO(line);
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    REQUIRE(words.size() > 3);
    CHECK(words[2] == "inet");
    CHECK(words[3] == kTable);
    hooks += absl::StrContains(line, " hook ");
    on_hook += absl::StartsWith(line, absl::StrCat("add rule inet ", kTable, " output "));
  }
  CHECK(hooks == 1);
  CHECK(on_hook == 1);
  CHECK(absl::StrContains(all, "output socket cgroupv2 level 2 vmap @sessions\n"));
}

TEST_CASE("a session's packets come to its chain last, when all of it is there") {
  const PacketRules rules = SomeRules();
  NftSession session;
  session.cgroup_id = 42;
  session.cgroup = "a/b";
  session.policy = 7;
  session.rules = &rules;
  const std::vector<std::string> lines = Lines(Ruleset().AddSession(session));
  CHECK(lines.back() == "add element inet agentmon-1f sessions { \"a/b\" : goto s42 }");
  const auto has = [&](absl::string_view rule) { return std::count(lines.begin(), lines.end(), rule) == 1; };
  CHECK(has("add rule inet agentmon-1f s42 ip daddr @p7.all4 goto s42.stop"));
  CHECK(has("add rule inet agentmon-1f s42 ip6 daddr . meta l4proto . th dport @p7.some6 goto s42.stop"));
  CHECK(
      has("add rule inet agentmon-1f s42.stop limit rate 20/second burst 100 packets log prefix \"agentmon "
          "42\" group 77 snaplen 128 queue-threshold 1"));
  CHECK_FALSE(absl::StrContains(absl::StrCat(Ruleset().AddSession(session)), "hdrlength"));
  CHECK(absl::StrContains(Ruleset(true).AddSession(session), "hdrlength"));
}

TEST_CASE("ranges are written as nft reads them, and empty sets are not there") {
  CHECK(Ruleset().AddPolicy(7, SomeRules()) ==
        "add set inet agentmon-1f p7.all4 { type ipv4_addr; flags interval; }\n"
        "add element inet agentmon-1f p7.all4 { 10.0.0.0-10.255.255.255 }\n"
        "add set inet agentmon-1f p7.some6 { type ipv6_addr . inet_proto . inet_service; flags interval; }\n"
        "add element inet agentmon-1f p7.some6 { 2001:db8::1-2001:db8::9 . udp . 80-90 }\n");
}

TEST_CASE("a session whose policy could not be written sends nothing but questions") {
  NftSession session;
  session.cgroup_id = 42;
  session.resolver.v4 = *policy::ParseAddress("127.0.0.1");
  session.resolver.v4_port = 5353;
  const std::string text = Ruleset().AddSession(session);
  CHECK(absl::StrContains(text,
                          "s42 ip daddr 127.0.0.1 meta l4proto { tcp, udp } th dport 5353 return\n"
                          "add rule inet agentmon-1f s42 goto s42.stop\n"));
}

TEST_CASE("names open and close ports of an address for their time") {
  const std::map<policy::Address, NamedAddress> names = {
      {*policy::ParseAddress("192.0.2.1"),
       {{{IPPROTO_TCP, {443, 443}, false}, {IPPROTO_UDP, {0, 65535}, true}}, absl::Seconds(90)}}};
  CHECK(
      Ruleset().AddNames(42, names) ==
      "add element inet agentmon-1f s42.names4 { 192.0.2.1 . tcp . 443 timeout 90s : return }\n"
      "add element inet agentmon-1f s42.names4 { 192.0.2.1 . udp . 0-65535 timeout 90s : goto s42.stop }\n");
}

}  // namespace
}  // namespace agentmon
