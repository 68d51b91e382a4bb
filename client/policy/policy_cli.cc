#include "client/policy/policy_cli.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/base/unique_fd.h"
#include "common/policy/evaluate.h"
#include "common/policy/loader.h"
#include "common/policy/policy_proto.h"
#include "common/policy/schema.h"
#include "common/policy/shipped.h"

namespace agentmon::policy_cli {

using policy::Decision;
using policy::Diagnostic;
using policy::Document;
using policy::LayerKind;

int Show(const PolicyContext& context, const std::string& name, std::ostream& out, std::ostream& err) {
  const auto text = FindPolicy(context, name);
  if (!text.ok()) {
    err << text.status().message() << "\n";
    return 2;
  }
  out << text->text;
  return 0;
}

int Validate(const PolicyContext& context, const std::vector<std::string>& files, std::ostream& out,
             std::ostream& err) {
  int status = 0;
  for (const std::string& file : files) {
    if (!FindPolicy(context, file).ok()) status = 2;
    const auto document = LoadNamed(context, file, err);
    if (document == nullptr) {
      status = std::max(status, 1);
      continue;
    }
    const policy::CompileResult compiled =
        Compile({{LayerKind::kBase, document}}, policy::WithStandIns(*document, context.compile));
    for (const Diagnostic& d : compiled.diagnostics) err << policy::FormatDiagnostic(d) << "\n";
    if (compiled.snapshot == nullptr)
      status = std::max(status, 1);
    else
      out << document->file << ": " << document->rules.size() << " rules, valid\n";
  }
  return status;
}

int Lint(const PolicyContext& context, const LintOptions& options, std::ostream& out, std::ostream& err) {
  int status = 0;
  for (const std::string& file : options.files) {
    if (!FindPolicy(context, file).ok()) status = 2;
    const auto document = LoadNamed(context, file, err);
    if (document == nullptr) {
      status = std::max(status, 1);
      continue;
    }
    const policy::Diagnostics findings = policy::Lint(document, options.layer, context.compile);
    for (const Diagnostic& d : findings) out << policy::FormatDiagnostic(d) << "\n";
    if (!findings.empty()) status = std::max(status, 1);
  }
  return status;
}

int Test(const PolicyContext& context, const TestOptions& options, std::ostream& out, std::ostream& err) {
  const policy::PolicySource source = [&](absl::string_view name,
                                          absl::string_view table) -> absl::StatusOr<policy::PolicyText> {
    const std::string beside =
        (std::filesystem::path(std::string(table)).parent_path() / std::string(name)).string();
    if (auto text = policy::ReadPolicyFile(beside); text.ok())
      return policy::PolicyText{*std::move(text), beside};
    return FindPolicy(context, name);
  };
  std::vector<std::pair<std::string, policy::TableRun>> runs;
  int status = 0;
  for (const std::string& table : options.tables) {
    const auto text = policy::ReadPolicyFile(table);
    if (!text.ok()) {
      err << text.status().message() << "\n";
      status = 2;
      continue;
    }
    const auto start = std::chrono::steady_clock::now();
    policy::TableRun run = policy::RunTable(*text, table, source);
    run.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    for (const Diagnostic& d : run.diagnostics) err << policy::FormatDiagnostic(d) << "\n";
    if (!run.ok()) status = std::max(status, 1);
    runs.emplace_back(table, std::move(run));
  }
  if (options.junit) {
    out << policy::JUnit(runs);
    return status;
  }
  for (const auto& [table, run] : runs) {
    for (const policy::TableCase& c : run.cases) {
      if (!c.passed)
        out << c.file << ":" << c.at.line << ": FAIL " << c.name << ": " << c.detail << "\n";
      else if (options.verbose)
        out << c.file << ":" << c.at.line << ": ok " << c.name << "\n";
    }
    out << table << ": " << run.cases.size() - run.failed() << " passed, " << run.failed() << " failed\n";
  }
  return status;
}

namespace {

// "base: default: deny by secret-files (default.yaml:87)"
std::string StepLine(const policy::Snapshot& snapshot, const policy::TraceStep& step) {
  const policy::CompiledLayer& layer = snapshot.layers()[step.layer];
  if (step.decision == Decision::kNone) return absl::StrCat(layer.name, ": no say");
  std::string out = absl::StrCat(layer.name, ": ", DecisionName(step.decision));
  if (step.rule != nullptr) {
    absl::StrAppend(&out, " by ", step.rule->name);
    if (step.rule->at.line != 0)
      absl::StrAppend(&out, " (", layer.document->file, ":", step.rule->at.line, ")");
  } else {
    absl::StrAppend(&out, " (", step.reason, ")");
  }
  if (!step.about.empty())
    absl::StrAppend(&out, ", for the command behind it: ", policy::Printable(step.about));
  if (step.effective != step.decision) absl::StrAppend(&out, ", in effect ", DecisionName(step.effective));
  return out;
}

}  // namespace

int Explain(const PolicyContext& context, const ExplainOptions& options, std::ostream& out,
            std::ostream& err) {
  std::vector<policy::LayerInput> layers;
  std::vector<std::string> names = options.policies;
  if (names.empty()) names.push_back("default");
  for (const std::string& file : options.floor)
    layers.push_back({LayerKind::kFloor, LoadNamed(context, file, err)});
  for (size_t i = 0; i < names.size(); ++i)
    layers.push_back({i == 0 ? LayerKind::kBase : LayerKind::kSession, LoadNamed(context, names[i], err)});
  for (const policy::LayerInput& layer : layers) {
    if (layer.document == nullptr) return 2;
  }
  const policy::CompileResult compiled = Compile(layers, context.compile);
  for (const Diagnostic& d : compiled.diagnostics) err << policy::FormatDiagnostic(d) << "\n";
  if (compiled.snapshot == nullptr) return 2;
  const policy::Snapshot& snapshot = *compiled.snapshot;
  const auto act = policy::ParseAct(options.verb, options.subject, context.compile.variables);
  if (!act.ok()) {
    err << act.status().message() << "\n";
    return 2;
  }
  if ((*act)->env) {
    std::string why;
    const bool allowed = snapshot.EnvAllowed(options.subject, &why);
    out << (allowed ? "allow" : absl::StrCat("deny: ", why)) << "\n";
    return allowed ? 0 : 1;
  }
  (*act)->subject.depth = options.depth;
  policy::EvaluateOptions evaluate;
  evaluate.approver = options.approver;
  policy::Trace trace;
  const policy::Verdict verdict = Evaluate(snapshot, (*act)->subject, evaluate, &trace);
  const policy::VerdictText text = Describe(snapshot, verdict, (*act)->subject);
  out << DecisionName(verdict.effective);
  if (verdict.effective != verdict.decision)
    out << " (the rule says " << DecisionName(verdict.decision) << ")";
  out << ": " << text.rule << "\n";
  if (!text.message.empty()) out << text.message << "\n";
  for (const policy::TraceStep& step : trace) out << "  " << StepLine(snapshot, step) << "\n";
  return verdict.Stops() ? 1 : 0;
}

int Diff(const PolicyContext& context, const std::string& a, const std::string& b, std::ostream& out,
         std::ostream& err) {
  const auto rules = [](const Document& document) {
    v1::PolicyDocument message;
    ToProto(document, message);
    std::map<std::string, std::string> all;
    for (v1::Rule& rule : *message.mutable_rules()) {
      const std::string key = absl::StrCat(
          policy::RuleKindName(static_cast<policy::RuleKind>(rule.kind() - 1)), " rule ", rule.name());
      const std::string line = absl::StrCat(" (line ", rule.at().line(), ")");
      rule.clear_at();
      for (auto* texts : {rule.mutable_paths(), rule.mutable_domains(), rule.mutable_cidrs(),
                          rule.mutable_commands(), rule.mutable_args_patterns(), rule.mutable_args()}) {
        for (v1::PolicyText& text : *texts) text.clear_at();
      }
      rule.mutable_target_pattern()->clear_at();
      rule.mutable_redirect()->mutable_target()->clear_at();
      all[key] += rule.ShortDebugString();
    }
    return all;
  };
  const auto one = LoadNamed(context, a, err), two = LoadNamed(context, b, err);
  if (one == nullptr || two == nullptr) return 2;
  const auto before = rules(*one), after = rules(*two);
  bool differ = false;
  for (const auto& [key, text] : before) {
    const auto found = after.find(key);
    if (found != after.end() && found->second == text) continue;
    out << (found == after.end() ? "- " : "~ ") << key << "\n";
    differ = true;
  }
  for (const auto& [key, text] : after) {
    if (before.contains(key)) continue;
    out << "+ " << key << "\n";
    differ = true;
  }
  for (size_t i = 0; i < policy::kDefaults; ++i) {
    if (one->defaults[i] == two->defaults[i]) continue;
    out << "~ default " << DefaultName(static_cast<policy::DefaultFor>(i)) << ": "
        << DecisionName(one->defaults[i]) << " -> " << DecisionName(two->defaults[i]) << "\n";
    differ = true;
  }
  if (one->posture != two->posture) {
    out << "~ posture: " << PostureName(one->posture) << " -> " << PostureName(two->posture) << "\n";
    differ = true;
  }
  return differ ? 1 : 0;
}

int Init(const std::string& file, std::ostream& out, std::ostream& err) {
  const std::string text = policy::StarterPolicy();
  if (file == "-") {
    out << text;
    return 0;
  }
  const UniqueFd fd(open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (!fd.valid() || write(fd.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    err << ErrnoStatus(errno, absl::StrCat("write ", file)).message() << "\n";
    return errno == EEXIST ? 1 : 2;
  }
  out << file << "\n";
  return 0;
}

int Schema(std::ostream& out) {
  out << policy::JsonSchema();
  return 0;
}

}  // namespace agentmon::policy_cli
