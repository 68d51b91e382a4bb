#include "daemon/resolver/question_judge.h"

#include <catch2/catch.hpp>

#include "common/policy/testing/snapshots.h"
#include "daemon/resolver/address_scope.h"
#include "daemon/resolver/dns_fixture.h"

namespace agentmon {
namespace {

std::shared_ptr<const policy::Snapshot> Base(absl::string_view rules) { return policy::MakeBase(rules); }

QuestionVerdict Judge(const policy::Snapshot& snapshot, absl::string_view name, uint16_t type = kDnsA) {
  return JudgeQuestion(snapshot, ReadQuery(Ask(name, type)).query.question);
}

// "" = may be opened, else the rule that says no.
std::string Answer(const policy::Snapshot& snapshot, const std::string& name, absl::string_view address) {
  const auto denial = JudgeAnswer(snapshot, Judge(snapshot, name), name, *policy::ParseAddress(address),
                                  ScopeOf(*policy::ParseAddress(address)));
  return denial.has_value() ? denial->rule() : "";
}

constexpr char kRules[] = R"(
network_rules:
  - {name: no, domains: [no.hosts.example], decision: deny, message: "not this one"}
  - {name: hosts, domains: ["*.hosts.example", one.example], ports: [443], decision: allow}
  - {name: own, domains: [git.corp.example], cidrs: [10.1.0.0/16], decision: allow}
  - {name: dev, cidrs: [127.0.0.0/8], ports: [3000-3999], decision: allow}
  - {name: names, domains: ["**.dev.example"], ports: [3000], decision: allow}
  - {name: intern, domains: ["**.internal"], decision: allow}
)";

}  // namespace

TEST_CASE("a question is judged by its name, deny before allow in the order of the rules") {
  const auto snapshot = Base(kRules);
  const QuestionVerdict yes = Judge(*snapshot, "A.Hosts.Example");
  CHECK_FALSE(yes.stop);
  CHECK(yes.judgement.rule() == "hosts");
  CHECK(yes.judgement.decision() == v1::ALLOW);
  CHECK_FALSE(yes.judgement.enforced());
  CHECK_FALSE(yes.spelled_out);
  CHECK(Judge(*snapshot, "one.example").spelled_out);
  const QuestionVerdict no = Judge(*snapshot, "no.hosts.example");
  CHECK(no.stop);
  CHECK(no.judgement.rule() == "no");
  CHECK(no.judgement.message() == "not this one");
  CHECK(no.judgement.enforced());
  CHECK(no.judgement.mechanism() == "resolver");
  CHECK(Judge(*snapshot, "hosts.example").stop);
  CHECK(Judge(*snapshot, "a.b.hosts.example").stop);
  CHECK(Judge(*snapshot, "other.example").judgement.decision() == v1::DENY);
}

TEST_CASE("a policy that only records stops no question, and says what it would have stopped") {
  const auto snapshot =
      policy::MakeSnapshot({{policy::LayerKind::kBase, "version: 1\nname: m\nposture: monitor\n", "m.yaml"}});
  const QuestionVerdict verdict = Judge(*snapshot, "x.example");
  CHECK_FALSE(verdict.stop);
  CHECK(verdict.judgement.decision() == v1::DENY);
  CHECK_FALSE(verdict.judgement.enforced());
  CHECK_FALSE(Judge(*snapshot, "printer.local").stop);
  CHECK(JudgeAnswer(*snapshot, verdict, "x.example", *policy::ParseAddress("127.0.0.1"),
                    AddressScope::kHost) == std::nullopt);
}

TEST_CASE("names of the local link, and names that are none, are stopped whatever the rules allow") {
  const auto snapshot = Base("network_rules: [{name: all, domains: ['**'], decision: allow}]\n");
  CHECK_FALSE(Judge(*snapshot, "x.example").stop);
  const QuestionVerdict local = Judge(*snapshot, "printer.local");
  CHECK(local.stop);
  CHECK(local.judgement.rule() == "multicast name");
  CHECK(Judge(*snapshot, "local").stop);
  CHECK_FALSE(Judge(*snapshot, "notlocal").stop);
  const DnsQuestion odd{"a\\.b.example", false, 3, kDnsA, kDnsInternet};
  CHECK(JudgeQuestion(*snapshot, odd).judgement.rule() == "name with other bytes");
}

TEST_CASE("a public name does not lead to this host, the link or a local network") {
  const auto snapshot = Base(kRules);
  CHECK(Answer(*snapshot, "a.hosts.example", "192.0.2.1").empty());
  CHECK(Answer(*snapshot, "a.hosts.example", "2001:db8::1").empty());
  for (const absl::string_view address : {"127.0.0.1",
                                          "0.0.0.0",
                                          "169.254.169.254",
                                          "10.1.2.3",
                                          "172.16.0.1",
                                          "192.168.1.1",
                                          "100.64.0.1",
                                          "100.100.100.200",
                                          "168.63.129.16",
                                          "224.0.0.1",
                                          "255.255.255.255",
                                          "::1",
                                          "::",
                                          "fe80::1",
                                          "fd00::1",
                                          "fd00:ec2::254",
                                          "ff02::fb",
                                          "::ffff:127.0.0.1",
                                          "64:ff9b::7f00:1",
                                          "2002:7f00:1::1"}) {
    CAPTURE(address);
    CHECK(Answer(*snapshot, "a.hosts.example", address) == "rebinding");
  }
}

TEST_CASE("a name leads to a local address where a rule allows the address") {
  const auto snapshot = Base(kRules);
  CHECK(Answer(*snapshot, "git.corp.example", "10.1.2.3").empty());
  CHECK(Answer(*snapshot, "git.corp.example", "10.2.2.3") == "rebinding");
  CHECK(Answer(*snapshot, "x.dev.example", "127.0.0.1").empty());           // port 3000 is open by itself
  CHECK(Answer(*snapshot, "a.hosts.example", "127.0.0.1") == "rebinding");  // port 443 is not
  // Where everything is allowed a name changes nothing.
  CHECK(Answer(*Base("defaults: {network: allow}\n"), "a.example", "10.0.0.1").empty());
  CHECK(Answer(*Base("defaults: {network: allow}\n"
                     "network_rules: [{name: meta, cidrs: [169.254.0.0/16], decision: deny}]\n"),
               "a.example", "169.254.169.254") == "rebinding");
}

TEST_CASE("names of a local network lead to addresses of it, but not to the host or to metadata") {
  const auto snapshot = Base(kRules);
  CHECK(Answer(*snapshot, "db.internal", "10.0.0.5").empty());
  CHECK(Answer(*snapshot, "db.internal", "fd12::5").empty());
  CHECK(Answer(*snapshot, "db.internal", "127.0.0.1") == "rebinding");
  CHECK(Answer(*snapshot, "metadata.google.internal", "169.254.169.254") == "rebinding");
  CHECK(IsLocalName("db"));
  CHECK(IsLocalName("a.home.arpa"));
  CHECK_FALSE(IsLocalName("internal.example"));
  CHECK_FALSE(IsLocalName("a.notinternal"));
}

}  // namespace agentmon
