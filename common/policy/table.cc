#include "common/policy/table.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "common/policy/evaluate.h"
#include "common/policy/loader.h"

namespace agentmon::policy {
namespace {

class Table {
 public:
  Table(absl::string_view file, const PolicySource& source, TableRun& run)
      : source_(source), run_(run), context_{std::string(file), &run.diagnostics, &ignored_} {
    options_.variables.derived = {{"HOME", "/home/user"},
                                  {"USER", "user"},
                                  {"UID", "1000"},
                                  {"TMPDIR", "/tmp"},
                                  {"WORKSPACE", "/home/user/project"},
                                  {"GIT_ROOT", "/home/user/project"}};
    evaluate_.approver = true;
  }

  void Run(const YamlNode& root) {
    MapReader top(root, "table", context_);
    std::vector<std::pair<std::string, std::string>> variables;
    top.TextMap("variables", &variables);
    for (auto& [name, value] : variables) options_.variables.derived[name] = value;
    top.Bool("approver", &evaluate_.approver);
    Text base{"default", {}};
    top.Text("policy", &base);
    Layer(LayerKind::kBase, base);
    if (const YamlNode* layers = top.Node("layers", ValueType::kSection)) Layers(*layers);
    const YamlNode* rows = top.Node("rows", ValueType::kSectionList);
    top.Finish();
    if (HasErrors(run_.diagnostics)) return;
    options_.builtin =
        InstalledPaths("/var/lib/agentmon", "/run/agentmon", options_.variables.derived["HOME"]);
    CompileResult compiled = Compile(inputs_, options_);
    run_.diagnostics.insert(run_.diagnostics.end(), compiled.diagnostics.begin(), compiled.diagnostics.end());
    snapshot_ = compiled.snapshot;
    if (snapshot_ == nullptr) return;
    if (rows == nullptr || rows->items.empty()) return context_.Error(root.at, "", "the table has no rows");
    for (const YamlNode* row : rows->items) Row(*row);
  }

 private:
  void Layers(const YamlNode& node) {
    MapReader map(node, "table_layers", context_);
    for (const auto& [key, kind] :
         {std::pair("floor", LayerKind::kFloor), std::pair("user", LayerKind::kUser),
          std::pair("session", LayerKind::kSession)}) {
      std::vector<Text> names;
      map.Texts(key, &names);
      for (const Text& name : names) Layer(kind, name);
    }
    map.Finish();
  }

  void Layer(LayerKind kind, const Text& name) {
    const absl::StatusOr<PolicyText> policy = source_(name.value, context_.file);
    if (!policy.ok()) return context_.Error(name.at, name.value, policy.status().message());
    LoadResult loaded = LoadPolicy(policy->text, policy->path);
    for (const Diagnostic& d : loaded.diagnostics) {
      if (d.severity == Severity::kError) run_.diagnostics.push_back(d);
    }
    inputs_.push_back({kind, std::make_shared<const Document>(std::move(loaded.document))});
  }

  void Row(const YamlNode& node) {
    MapReader map(node, "table_row", context_);
    Text expect, rule;
    map.Text("rule", &rule);
    if (!map.Word("expect", &expect)) {
      if (!map.Has("expect")) context_.Error(node.at, "", "the row has no expect", "expect: deny");
      return;
    }
    int64_t depth = 0;
    map.Integer("depth", &depth);
    for (const absl::string_view verb : ActVerbs()) {
      std::vector<Text> acts;
      map.Texts(verb, &acts);
      for (const Text& text : acts) Case(verb, text, expect.value, rule.value, static_cast<int>(depth));
    }
    map.Finish();
  }

  void Case(absl::string_view verb, const Text& text, const std::string& expect, const std::string& rule,
            int depth) {
    auto act = ParseAct(verb, text.value, options_.variables);
    if (!act.ok()) return context_.Error(text.at, text.value, act.status().message());
    TableCase& out = run_.cases.emplace_back();
    out.name = absl::StrCat(verb, " ", Printable(text.value));
    out.file = context_.file;
    out.at = text.at;
    std::string effect, decided;
    if ((*act)->env) {
      effect = snapshot_->EnvAllowed(text.value, &decided) ? "allow" : "deny";
    } else {
      (*act)->subject.depth = depth;
      const Verdict verdict = Evaluate(*snapshot_, (*act)->subject, evaluate_);
      const VerdictText described = Describe(*snapshot_, verdict, (*act)->subject);
      effect = std::string(DecisionName(verdict.effective));
      decided = verdict.rule ? described.rule : "default";
      if (!rule.empty() && rule != decided)
        out.detail = absl::StrCat("decided by ", decided, ", not by ", rule, "; ");
      if (verdict.rule) absl::StrAppend(&decided, " (", described.file, ":", described.at.line, ")");
    }
    if (effect != expect) absl::StrAppend(&out.detail, effect, ", not ", expect, ": ", decided);
    out.passed = out.detail.empty();
  }

  const PolicySource& source_;
  TableRun& run_;
  Document ignored_;
  LoadContext context_;
  CompileOptions options_;
  EvaluateOptions evaluate_;
  std::vector<LayerInput> inputs_;
  std::shared_ptr<const Snapshot> snapshot_;
};

std::string Xml(absl::string_view text) {
  return absl::StrReplaceAll(text, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}});
}

}  // namespace

bool TableRun::ok() const { return !HasErrors(diagnostics) && failed() == 0; }

size_t TableRun::failed() const {
  return std::count_if(cases.begin(), cases.end(), [](const TableCase& c) { return !c.passed; });
}

TableRun RunTable(absl::string_view text, absl::string_view file, const PolicySource& source) {
  TableRun run;
  const YamlTree tree = YamlTree::Parse(text, file, run.diagnostics);
  if (tree.root() == nullptr) {
    if (run.diagnostics.empty())
      run.diagnostics.push_back({Severity::kError, std::string(file), {1, 1}, "", "the table is empty", ""});
    return run;
  }
  if (!HasErrors(run.diagnostics)) Table(file, source, run).Run(*tree.root());
  return run;
}

std::string JUnit(const std::vector<std::pair<std::string, TableRun>>& runs) {
  std::string out = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n";
  for (const auto& [file, run] : runs) {
    const bool broken = HasErrors(run.diagnostics);
    absl::StrAppendFormat(
        &out, "  <testsuite name=\"%s\" tests=\"%d\" failures=\"%d\" errors=\"%d\" time=\"%.3f\">\n",
        Xml(file), run.cases.size() + broken, run.failed(), broken, run.seconds);
    if (broken) {
      std::string all;
      for (const Diagnostic& d : run.diagnostics) absl::StrAppend(&all, FormatDiagnostic(d), "\n");
      absl::StrAppend(&out, "    <testcase name=\"load\"><error>", Xml(all), "</error></testcase>\n");
    }
    for (const TableCase& c : run.cases) {
      absl::StrAppendFormat(&out, "    <testcase name=\"%s\" file=\"%s\" line=\"%d\"", Xml(c.name),
                            Xml(c.file), c.at.line);
      if (c.passed)
        out += "/>\n";
      else
        absl::StrAppend(&out, "><failure message=\"", Xml(c.detail), "\"/></testcase>\n");
    }
    out += "  </testsuite>\n";
  }
  return out + "</testsuites>\n";
}

}  // namespace agentmon::policy
