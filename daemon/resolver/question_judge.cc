#include "daemon/resolver/question_judge.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/policy/evaluate.h"
#include "common/policy/policy_proto.h"
#include "daemon/policy/gate.h"

namespace agentmon {
namespace {

constexpr char kMechanism[] = "resolver";
constexpr size_t kMostPorts = 8;

bool SpellsOut(const policy::Rule& rule, const std::string& name) {
  return std::any_of(rule.domains.begin(), rule.domains.end(), [&name](const policy::Text& domain) {
    const std::optional<std::string> normal = policy::NormalizeDomain(domain.value);
    return normal.has_value() && *normal == name;
  });
}

// The rule names addresses, and not merely all of them.
bool NamesAddresses(const policy::Rule& rule) {
  std::string error;
  const auto narrow = [&error](const policy::Text& text) {
    const std::optional<policy::Prefix> prefix = policy::ParsePrefix(text.value, error);
    return prefix.has_value() && prefix->length > 0;
  };
  return std::any_of(rule.cidrs.begin(), rule.cidrs.end(), narrow) ||
         std::any_of(rule.domains.begin(), rule.domains.end(), narrow);
}

// Where a program may go with this name, as far as one can say before it does.
std::vector<std::pair<uint16_t, uint8_t>> LikelyPorts(const policy::Rule* rule) {
  const uint8_t protocols = rule == nullptr || rule->protocols == 0 ? policy::kTcp : rule->protocols;
  const uint8_t protocol = (protocols & policy::kTcp) != 0 ? policy::kTcp : policy::kUdp;
  std::vector<std::pair<uint16_t, uint8_t>> ports;
  if (rule == nullptr || rule->ports.empty()) return {{443, protocol}, {80, protocol}, {22, protocol}};
  for (const policy::PortRange& range : rule->ports) {
    if (ports.size() < kMostPorts) ports.emplace_back(range.low, protocol);
  }
  return ports;
}

bool MayAnyNameLeadTo(AddressScope scope, const std::string& name) {
  return scope == AddressScope::kGlobal || (scope == AddressScope::kPrivate && IsLocalName(name));
}

// The rule that allows the name also names the address, or the address may be reached by itself.
bool MayLeadInside(const policy::Snapshot& snapshot, const std::string& name, const policy::Address& address,
                   uint16_t port, uint8_t protocol) {
  const policy::Verdict by_name = policy::Evaluate(
      snapshot, policy::ConnectSubject(address, port, protocol, name), policy::EvaluateOptions());
  if (by_name.Stops()) return false;
  if (by_name.rule != nullptr && NamesAddresses(*by_name.rule)) return true;
  const policy::Verdict by_itself =
      policy::Evaluate(snapshot, policy::ConnectSubject(address, port, protocol), policy::EvaluateOptions());
  return !by_itself.Stops();
}

v1::Judgement Rebinding(const policy::Snapshot& snapshot, const std::string& name,
                        const policy::Address& address) {
  return ResolverDenial(
      snapshot, "rebinding",
      absl::StrCat(name, " was answered with ", policy::ToString(address),
                   ", an address of this host or of a local network, which no rule allows; a rule "
                   "with this name and a cidr does"));
}

}  // namespace

v1::Judgement ResolverDenial(const policy::Snapshot& snapshot, absl::string_view rule,
                             absl::string_view message) {
  v1::Judgement judgement = policy::BuiltinDenial(rule, message);
  judgement.set_enforced(Enforces(snapshot));
  if (judgement.enforced()) judgement.set_mechanism(kMechanism);
  return judgement;
}

QuestionVerdict JudgeQuestion(const policy::Snapshot& snapshot, const DnsQuestion& question) {
  QuestionVerdict out;
  const auto stop = [&](absl::string_view rule, absl::string_view message) {
    out.judgement = ResolverDenial(snapshot, rule, message);
    out.stop = out.judgement.enforced();
    return out;
  };
  if (!question.is_host_name)
    return stop("name with other bytes", "names have letters, digits, hyphens, underscores and dots");
  if (question.name == "local" || absl::EndsWith(question.name, ".local"))
    return stop("multicast name",
                "names below .local are not in DNS: they are asked of everybody on the local network");
  const policy::Subject subject = policy::QuerySubject(question.name);
  const policy::Verdict verdict = policy::Evaluate(snapshot, subject, policy::EvaluateOptions());
  out.stop = verdict.Stops();
  out.rule = verdict.rule;
  out.spelled_out = verdict.rule != nullptr && SpellsOut(*verdict.rule, question.name);
  out.judgement = JudgementOf(snapshot, verdict, subject, kMechanism);
  return out;
}

v1::Judgement JudgementOf(const policy::Snapshot& snapshot, const policy::Verdict& verdict,
                          const policy::Subject& subject, const char* mechanism) {
  v1::Judgement judgement;
  if (verdict.rule == nullptr && verdict.decision == policy::Decision::kAllow) {
    judgement.set_decision(v1::ALLOW);
    return judgement;
  }
  judgement = policy::ToJudgement(snapshot, verdict, subject);
  judgement.set_enforced(verdict.Stops());
  if (verdict.Stops()) judgement.set_mechanism(mechanism);
  return judgement;
}

std::optional<v1::Judgement> JudgeAnswer(const policy::Snapshot& snapshot, const QuestionVerdict& verdict,
                                         const std::string& name, const policy::Address& address,
                                         AddressScope scope) {
  if (MayAnyNameLeadTo(scope, name)) return std::nullopt;
  for (const auto& [port, protocol] : LikelyPorts(verdict.rule)) {
    if (MayLeadInside(snapshot, name, address, port, protocol)) return std::nullopt;
  }
  return Rebinding(snapshot, name, address);
}

std::optional<v1::Judgement> JudgeAnswerAt(const policy::Snapshot& snapshot, const std::string& name,
                                           const policy::Address& address, AddressScope scope, uint16_t port,
                                           uint8_t protocol) {
  if (MayAnyNameLeadTo(scope, name) || MayLeadInside(snapshot, name, address, port, protocol))
    return std::nullopt;
  return Rebinding(snapshot, name, address);
}

}  // namespace agentmon
