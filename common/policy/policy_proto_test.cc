#include "common/policy/policy_proto.h"

#include <catch2/catch.hpp>

#include <google/protobuf/util/message_differencer.h>

#include "absl/strings/str_cat.h"
#include "common/policy/loader.h"

namespace agentmon::policy {
namespace {

v1::PolicyDocument Shipped(const char* name) {
  const std::string path = absl::StrCat(AGENTMON_SOURCE_DIR, "/packaging/policies/", name, ".yaml");
  v1::PolicyDocument out;
  ToProto(LoadPolicy(ReadPolicyFile(path).value(), path).document, out);
  return out;
}

}  // namespace

TEST_CASE("a document survives the way through a message") {
  for (const char* name : {"default", "strict"}) {
    const v1::PolicyDocument sent = Shipped(name);
    v1::PolicyDocument parsed, again;
    REQUIRE(parsed.ParseFromString(sent.SerializeAsString()));
    Diagnostics diagnostics;
    ToProto(FromProto(parsed, diagnostics), again);
    for (const Diagnostic& d : diagnostics) FAIL_CHECK(FormatDiagnostic(d));
    CHECK(google::protobuf::util::MessageDifferencer::Equals(again, sent));
    CHECK(again.rules(0).at().line() > 0);
  }
}

TEST_CASE("what a client sends is checked: kinds, decisions, patterns, ports, operations") {
  const auto errors = [](const std::function<void(v1::Rule&)>& spoil) {
    v1::PolicyDocument message;
    message.set_file("sent.yaml");
    v1::Rule& rule = *message.add_rules();
    rule.set_kind(v1::RULE_KIND_FILE);
    rule.set_decision(v1::DENY);
    rule.mutable_at()->set_line(7);
    rule.add_paths()->set_value("/x");
    spoil(rule);
    Diagnostics diagnostics;
    FromProto(message, diagnostics);
    return diagnostics.size();
  };
  CHECK(errors([](v1::Rule&) {}) == 0);
  CHECK(errors([](v1::Rule& r) { r.set_kind(static_cast<v1::RuleKind>(99)); }) == 1);
  CHECK(errors([](v1::Rule& r) { r.set_decision(v1::DECISION_UNSPECIFIED); }) == 1);
  CHECK(errors([](v1::Rule& r) { r.mutable_paths(0)->set_value("relative"); }) == 1);
  CHECK(errors([](v1::Rule& r) { r.mutable_paths(0)->set_value("/[a"); }) == 1);
  CHECK(errors([](v1::Rule& r) { r.mutable_paths(0)->set_value(std::string(100000, 'a')); }) == 1);
  CHECK(errors([](v1::Rule& r) { r.add_operations("fly"); }) == 1);
  CHECK(errors([](v1::Rule& r) {
          r.set_kind(v1::RULE_KIND_COMMAND);
          r.add_args_patterns()->set_value("(");
        }) == 1);
  CHECK(errors([](v1::Rule& r) {
          r.set_kind(v1::RULE_KIND_NETWORK);
          r.add_ports()->set_high(70000);
        }) == 1);
  CHECK(errors([](v1::Rule& r) { r.set_kind(v1::RULE_KIND_SIGNAL); }) == 1);
}

TEST_CASE("every decision has a number of its own") {
  for (const Decision d : {Decision::kAllow, Decision::kAudit, Decision::kRedirect, Decision::kSoftDelete,
                           Decision::kAsk, Decision::kAbsorb, Decision::kDeny}) {
    CHECK(FromProto(ToProto(d)) == d);
  }
  CHECK(FromProto(v1::DECISION_UNSPECIFIED) == Decision::kNone);
}

}  // namespace agentmon::policy
