// Policy text of any kind: must load or be refused, and what loads must compile and judge without a crash.
#include <cstddef>
#include <cstdint>

#include "common/policy/evaluate.h"
#include "common/policy/lint.h"
#include "common/policy/loader.h"
#include "common/policy/policy_proto.h"

using namespace agentmon;          // NOLINT
using namespace agentmon::policy;  // NOLINT

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  LoadResult loaded = LoadPolicy(absl::string_view(reinterpret_cast<const char*>(data), size), "fuzz.yaml");
  if (!loaded.ok()) return 0;
  v1::PolicyDocument message;
  ToProto(loaded.document, message);
  Diagnostics diagnostics;
  const Document again = FromProto(message, diagnostics);
  if (HasErrors(diagnostics)) __builtin_trap();  // what a client may send, the daemon must take
  CompileOptions options;
  options.variables.derived = {
      {"HOME", "/home/u"}, {"WORKSPACE", "/home/u/ws"}, {"TMPDIR", "/tmp"}, {"USER", "u"}};
  const auto document = std::make_shared<const Document>(again);
  Lint(document, LayerKind::kUser, options);
  const CompileResult compiled = Compile({{LayerKind::kBase, document}}, WithStandIns(*document, options));
  if (compiled.snapshot == nullptr) return 0;
  const EvaluateOptions evaluate;
  const absl::string_view argv[] = {"git", "push", "--force"};
  Evaluate(*compiled.snapshot, FileSubject(kRename, "/home/u/ws/.env", "/home/u/x"), evaluate);
  Evaluate(*compiled.snapshot, ExecSubject("/usr/bin/git", argv), evaluate);
  Evaluate(*compiled.snapshot, ConnectSubject(*ParseAddress("10.0.0.1"), 443, kTcp, "a.example.com"),
           evaluate);
  Evaluate(*compiled.snapshot, UnixSubject(kUnixConnect, "@x"), evaluate);
  Evaluate(*compiled.snapshot, SignalSubject(9, kTargetExternal), evaluate);
  return 0;
}
