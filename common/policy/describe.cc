#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "common/policy/evaluate.h"

namespace agentmon::policy {

std::string FillMessage(absl::string_view message, const Subject& subject) {
  if (message.find("{{") == absl::string_view::npos) return std::string(message);
  const std::string address = !subject.name.empty() ? std::string(subject.name)
                              : subject.address     ? ToString(*subject.address)
                                                    : "";
  const absl::string_view path = subject.kind == RuleKind::kCommand ? subject.exe : subject.path;
  const auto arguments = subject.argv.empty() ? subject.argv : subject.argv.subspan(1);
  return absl::StrReplaceAll(message, {{"{{.Path}}", path},
                                       {"{{.Args}}", absl::StrJoin(arguments, " ")},
                                       {"{{.RemoteAddr}}", address},
                                       {"{{.RemotePort}}", absl::StrCat(subject.port)}});
}

VerdictText Describe(const Snapshot& snapshot, const Verdict& verdict, const Subject& subject) {
  VerdictText out;
  if (verdict.layer >= 0) {
    const CompiledLayer& layer = snapshot.layers()[verdict.layer];
    out.layer = layer.name;
    out.file = layer.document->file;
  }
  if (verdict.rule == nullptr) {
    out.rule = std::string(verdict.reason);
    return out;
  }
  out.rule = verdict.rule->name;
  out.at = verdict.rule->at;
  out.message = FillMessage(verdict.rule->message, subject);
  return out;
}

}  // namespace agentmon::policy
