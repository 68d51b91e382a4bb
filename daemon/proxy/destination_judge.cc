#include "daemon/proxy/destination_judge.h"

#include <algorithm>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/policy/evaluate.h"
#include "common/policy/policy_proto.h"
#include "daemon/policy/gate.h"

namespace agentmon {
namespace {

constexpr char kMechanism[] = "proxy";

}  // namespace

v1::Judgement ProxyDenial(const policy::Snapshot& snapshot, absl::string_view rule, absl::string_view message,
                          bool always) {
  v1::Judgement judgement = policy::BuiltinDenial(rule, message);
  judgement.set_enforced(always || Enforces(snapshot));
  if (judgement.enforced()) judgement.set_mechanism(kMechanism);
  return judgement;
}

QuestionVerdict JudgeName(const policy::Snapshot& snapshot, const Destination& destination) {
  DnsQuestion question;
  question.name = destination.host;
  question.is_host_name = destination.is_host_name;
  QuestionVerdict verdict = JudgeQuestion(snapshot, question);
  if (verdict.judgement.enforced()) verdict.judgement.set_mechanism(kMechanism);
  return verdict;
}

ConnectVerdict JudgeConnect(const policy::Snapshot& snapshot, const Destination& destination,
                            const policy::Address& address, AddressScope scope, bool trusted) {
  const std::string name = destination.address.has_value() ? "" : destination.host;
  const policy::Subject subject = policy::ConnectSubject(address, destination.port, policy::kTcp, name);
  const policy::Verdict verdict = policy::Evaluate(snapshot, subject, policy::EvaluateOptions());
  ConnectVerdict out;
  out.stop = verdict.Stops();
  if (!out.stop && !trusted) {
    if (const auto denial = JudgeAnswerAt(snapshot, name, address, scope, destination.port, policy::kTcp)) {
      out.judgement = *denial;
      out.stop = denial->enforced();
      if (out.stop) out.judgement.set_mechanism(kMechanism);
      return out;
    }
  }
  out.judgement = JudgementOf(snapshot, verdict, subject, kMechanism);
  return out;
}

std::string WhyDenied(const v1::Judgement& judgement) {
  std::string why = absl::StrCat("agentmon: denied by ", judgement.rule());
  if (judgement.line() != 0) absl::StrAppend(&why, " (", judgement.file(), ":", judgement.line(), ")");
  if (!judgement.message().empty()) absl::StrAppend(&why, ": ", judgement.message());
  std::replace_if(why.begin(), why.end(), absl::ascii_iscntrl, ' ');
  return why;
}

}  // namespace agentmon
