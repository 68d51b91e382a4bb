#include "client/command/policy.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "agentmon/v1/policy.grpc.pb.h"
#include "client/exit_status.h"
#include "client/output/event_json.h"
#include "client/output/names.h"
#include "client/output/text.h"
#include "common/policy/policy_proto.h"

namespace agentmon {
namespace {

using Json = nlohmann::ordered_json;

std::string Place(const std::string& file, const v1::PolicyPosition& at) {
  return at.line() == 0 ? Printable(file) : absl::StrCat(Printable(file), ":", at.line());
}

std::string ProblemText(const v1::PolicyDiagnostic& d) {
  policy::Diagnostic out;
  out.severity = static_cast<policy::Severity>(d.severity());
  out.file = d.file();
  out.at = {d.at().line(), d.at().column()};
  out.text = d.text();
  out.message = d.message();
  out.suggestion = d.suggestion();
  return Printable(policy::FormatDiagnostic(out));
}

// One call of the policy service; false after the complaint.
template <typename Request, typename Response>
bool Call(const VerbContext& context,
          grpc::Status (v1::Policy::Stub::*method)(grpc::ClientContext*, const Request&, Response*),
          const Request& request, Response* response, int* exit_status) {
  const auto channel = context.Connect(exit_status);
  if (channel == nullptr) return false;
  const auto stub = v1::Policy::NewStub(channel);
  grpc::ClientContext client_context;
  SetDeadline(client_context, kCompileTime);
  const grpc::Status status = (stub.get()->*method)(&client_context, request, response);
  if (status.ok()) return true;
  *exit_status = context.FailRpc(status);
  return false;
}

}  // namespace

int PolicyList(const VerbContext& context) {
  int exit_status = kOk;
  v1::ListPoliciesResponse response;
  if (!Call(context, &v1::Policy::Stub::List, v1::ListPoliciesRequest(), &response, &exit_status)) {
    return exit_status;
  }
  if (context.json) {
    Json all = Json::array();
    for (const auto& entry : response.policies()) {
      Json one{{"name", ToUtf8(entry.name())},
               {"path", ToUtf8(entry.path())},
               {"description", ToUtf8(entry.description())},
               {"posture", PostureName(entry.posture())},
               {"rules", entry.rules()},
               {"default", entry.is_default()},
               {"floor", entry.floor()},
               {"problems", Json::array()}};
      for (const v1::PolicyDiagnostic& d : entry.problems()) one["problems"].push_back(ProblemText(d));
      all.push_back(std::move(one));
    }
    context.output->Line(DumpJson(all, 2));
    return kOk;
  }
  int widest = 0;
  for (const auto& entry : response.policies())
    widest = std::max(widest, DisplayWidth(Printable(entry.name())));
  for (const auto& entry : response.policies()) {
    const std::string mark = entry.floor() ? "floor" : entry.is_default() ? "default" : "";
    context.output->Line(
        absl::StrCat(PadRight(Printable(entry.name()), widest), "  ", PadRight(mark, 7), "  ",
                     entry.problems().empty() ? Printable(entry.description()) : "does not load", " (",
                     Printable(entry.path()), ")"));
    for (const v1::PolicyDiagnostic& d : entry.problems()) Complain(context.err_fd, ProblemText(d));
  }
  return kOk;
}

int PolicyGet(const VerbContext& context, const PolicyOptions& options) {
  int exit_status = kOk;
  v1::GetPolicyRequest request;
  request.set_session(options.session);
  v1::GetPolicyResponse response;
  if (!Call(context, &v1::Policy::Stub::Get, request, &response, &exit_status)) return exit_status;
  Json all = Json::array();
  for (const v1::PolicyLayer& layer : response.layers()) {
    const v1::PolicyDocument& document = layer.document();
    if (!context.json) {
      context.output->Line(absl::StrCat(LayerName(layer.kind()), ": ", Printable(document.name()), " (",
                                        Printable(document.file()), ")"));
    }
    Json rules = Json::array();
    for (const v1::Rule& rule : document.rules()) {
      const auto kind = policy::RuleKindName(static_cast<policy::RuleKind>(rule.kind() - 1));
      const std::string decision = DecisionName(rule.decision());
      rules.push_back({{"kind", kind},
                       {"name", ToUtf8(rule.name())},
                       {"decision", decision},
                       {"line", rule.at().line()}});
      if (!context.json) {
        context.output->Line(absl::StrCat("  ", PadRight(kind, 12), PadRight(decision, 12),
                                          Printable(rule.name()), "  ", Place(document.file(), rule.at())));
      }
    }
    all.push_back({{"layer", LayerName(layer.kind())},
                   {"name", ToUtf8(document.name())},
                   {"file", ToUtf8(document.file())},
                   {"rules", std::move(rules)}});
  }
  if (context.json) context.output->Line(DumpJson(all, 2));
  return kOk;
}

int PolicyExplainSession(const VerbContext& context, const PolicyOptions& options) {
  int exit_status = kOk;
  v1::ExplainPolicyRequest request;
  request.set_session(options.session);
  request.mutable_act()->set_verb(options.explain.verb);
  request.mutable_act()->set_subject(options.explain.subject);
  request.mutable_act()->set_depth(static_cast<uint32_t>(options.explain.depth));
  v1::ExplainPolicyResponse response;
  if (!Call(context, &v1::Policy::Stub::Explain, request, &response, &exit_status)) return exit_status;
  const std::string decision = DecisionName(response.judgement().decision());
  const std::string effective = DecisionName(response.effective());
  context.output->Line(absl::StrCat(
      effective, effective == decision ? "" : absl::StrCat(" (the rule says ", decision, ")"), ": ",
      Printable(response.judgement().rule()),
      response.judgement().line() == 0 ? ""
                                       : absl::StrCat(" (", Printable(response.judgement().file()), ":",
                                                      response.judgement().line(), ")")));
  if (!response.message().empty()) context.output->Line(Printable(response.message()));
  for (const v1::PolicyTraceStep& step : response.trace()) {
    const std::string says = DecisionName(step.decision());
    std::string line = absl::StrCat("  ", Printable(step.layer()), ": ");
    if (says.empty()) {
      line += "no say";
    } else {
      absl::StrAppend(&line, says, " by ", Printable(step.rule()));
      if (step.at().line() != 0) absl::StrAppend(&line, " (", Place(step.file(), step.at()), ")");
      if (!step.about().empty()) absl::StrAppend(&line, ", for ", Printable(step.about()));
      if (step.effective() != step.decision())
        absl::StrAppend(&line, ", in effect ", DecisionName(step.effective()));
    }
    context.output->Line(line);
  }
  return response.effective() == v1::ALLOW || response.effective() == v1::AUDIT ? kOk : kNegative;
}

int PolicyReload(const VerbContext& context) {
  int exit_status = kOk;
  v1::ReloadPoliciesResponse response;
  if (!Call(context, &v1::Policy::Stub::Reload, v1::ReloadPoliciesRequest(), &response, &exit_status)) {
    return exit_status;
  }
  for (const v1::PolicyDiagnostic& d : response.diagnostics()) Complain(context.err_fd, ProblemText(d));
  if (!response.ok()) {
    return context.Fail(kNegative, "nothing was changed: the policies before are still in force");
  }
  context.output->Line(response.changed()
                           ? absl::StrCat("reloaded, ", response.sessions(),
                                          response.sessions() == 1 ? " session follows" : " sessions follow")
                           : "nothing has changed");
  return kOk;
}

int PolicySetup(const VerbContext& context) {
  const policy_cli::PolicyContext process = policy_cli::ContextOfProcess();
  const std::string directory = policy_cli::UserPolicyDirectory(process);
  if (directory.empty()) {
    return context.Fail(kNegative, "the user database gives you no home directory to keep policies in");
  }
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) return context.Fail(kNegative, absl::StrCat("make ", directory, ": ", error.message()));
  std::ostringstream out, err;
  const std::string file = directory + "/mine.yaml";
  const int status = policy_cli::Init(file, out, err);
  if (status != kOk) return context.FailLines(status, err.str());
  context.output->Line(
      absl::StrCat(file,
                   ": every session that you start is held to it as well; edit it, then 'agentmon "
                   "policy validate ",
                   file, "'"));
  return kOk;
}

}  // namespace agentmon
