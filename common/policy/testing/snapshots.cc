#include "common/policy/testing/snapshots.h"

#include <stdexcept>

#include "absl/strings/str_cat.h"

namespace agentmon::policy {

CompileOptions TestOptions() {
  CompileOptions options;
  options.variables.derived = {
      {"HOME", "/home/u"},        {"USER", "u"},     {"UID", "1000"}, {"WORKSPACE", "/home/u/ws"},
      {"GIT_ROOT", "/home/u/ws"}, {"TMPDIR", "/tmp"}};
  options.builtin = InstalledPaths("/var/lib/agentmon", "/run/agentmon", "/home/u");
  return options;
}

std::shared_ptr<const Snapshot> MakeSnapshot(const std::vector<TestLayer>& layers,
                                             const CompileOptions& options) {
  std::vector<LayerInput> inputs;
  std::string problems;
  const auto collect = [&](const Diagnostics& diagnostics) {
    for (const Diagnostic& d : diagnostics) absl::StrAppend(&problems, FormatDiagnostic(d), "\n");
    if (HasErrors(diagnostics)) throw std::runtime_error(problems);
  };
  for (const TestLayer& layer : layers) {
    LoadResult loaded = LoadPolicy(layer.text, layer.file);
    collect(loaded.diagnostics);
    inputs.push_back({layer.kind, std::make_shared<const Document>(std::move(loaded.document))});
  }
  CompileResult compiled = Compile(inputs, options);
  collect(compiled.diagnostics);
  return compiled.snapshot;
}

std::shared_ptr<const Snapshot> MakeBase(absl::string_view rules) {
  return MakeSnapshot({{LayerKind::kBase, absl::StrCat("version: 1\nname: test\n", rules), "test.yaml"}});
}

std::string Complaints(absl::string_view text, bool compile) {
  LoadResult loaded = LoadPolicy(text, "p.yaml");
  Diagnostics all = loaded.diagnostics;
  if (loaded.ok() && compile) {
    const CompileResult compiled =
        Compile({{LayerKind::kBase, std::make_shared<const Document>(loaded.document)}}, TestOptions());
    all.insert(all.end(), compiled.diagnostics.begin(), compiled.diagnostics.end());
  }
  std::string out;
  for (const Diagnostic& d : all) absl::StrAppend(&out, FormatDiagnostic(d), "\n");
  return out;
}

std::string Judge::File(uint32_t operations, absl::string_view path, absl::string_view new_path) const {
  return std::string(DecisionName(Of(FileSubject(operations, path, new_path)).effective));
}

std::string Judge::Exec(absl::string_view exe, std::vector<absl::string_view> arguments) const {
  arguments.insert(arguments.begin(), ProgramName(exe));
  return std::string(DecisionName(Of(ExecSubject(exe, arguments)).effective));
}

std::string Judge::Connect(absl::string_view address, uint16_t port, uint8_t protocol,
                           absl::string_view name) const {
  return std::string(
      DecisionName(Of(ConnectSubject(ParseAddress(address).value(), port, protocol, name)).effective));
}

std::string Judge::Query(absl::string_view name) const {
  return std::string(DecisionName(Of(QuerySubject(name)).effective));
}

std::string Judge::Unix(uint32_t operation, absl::string_view path) const {
  return std::string(DecisionName(Of(UnixSubject(operation, path)).effective));
}

std::string Judge::Signal(int signal, uint32_t target) const {
  return std::string(DecisionName(Of(SignalSubject(signal, target)).effective));
}

}  // namespace agentmon::policy
