// A compiled, immutable policy: what a session is judged by. Shared between threads, never changed.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/policy/command_index.h"
#include "common/policy/lookthrough.h"
#include "common/policy/network_index.h"
#include "common/policy/path_index.h"
#include "common/policy/rule.h"
#include "common/policy/variables.h"

namespace agentmon::policy {

// In the order of their rank: what an outer layer says about itself, no inner one can change.
enum class LayerKind : uint8_t { kBuiltin, kFloor, kBase, kUser, kSession };
absl::string_view LayerKindName(LayerKind kind);

struct LayerInput {
  LayerKind kind = LayerKind::kBase;
  std::shared_ptr<const Document> document;
};

// Our own objects, which no policy opens to an agent.
struct BuiltinPaths {
  std::vector<std::string> hidden;         // state and runtime directories: no access at all
  std::vector<std::string> read_only;      // configuration, binaries, the user's own policies
  std::vector<std::string> agent_sockets;  // sockets that an agent may connect to, inside a hidden directory
  std::vector<std::string> canaries;       // directories: every access, exec and connect is denied
  std::vector<std::pair<std::string, uint16_t>> canary_addresses;
};
// The paths of an installation: /var/lib/agentmon, /run/agentmon, /etc/agentmon, ...
BuiltinPaths InstalledPaths(absl::string_view state_dir, absl::string_view runtime_dir,
                            absl::string_view home);

struct CompileOptions {
  Variables variables;
  BuiltinPaths builtin;
  // Directories that are links on this host: a rule on the first is also one on the second.
  std::vector<std::pair<std::string, std::string>> links = {
      {"/bin", "/usr/bin"},     {"/sbin", "/usr/sbin"},     {"/lib", "/usr/lib"}, {"/lib32", "/usr/lib32"},
      {"/lib64", "/usr/lib64"}, {"/libx32", "/usr/libx32"}, {"/var/run", "/run"}, {"/var/lock", "/run/lock"}};
};

struct SignalRule {
  uint32_t rule;  // index into CompiledLayer::rules
  std::vector<Glob> pattern;
};

struct EnvFilter {
  bool given = false, allow_list = false;
  std::vector<Glob> allow, deny;
  int64_t max_bytes = 0, max_keys = 0;
};

// Limits of a layer whose posture only records hold nobody.
inline bool HoldsLimits(Posture posture) { return posture != Posture::kMonitor && posture != Posture::kWarn; }

struct CompiledLayer {
  LayerKind kind = LayerKind::kBase;
  std::string name;  // "floor: 10-company.yaml"
  std::shared_ptr<const Document> document;
  Posture posture = Posture::kEnforce;  // its own, else that of the layer above
  Enforcement enforcement = Enforcement::kRequired;
  std::array<Decision, kDefaults> defaults{};         // kNone outside of the base
  std::shared_ptr<const TransparentSet> transparent;  // shared by layers that look through the same names
  PathIndex files, unix_sockets;
  CommandIndex commands;
  NetworkIndex network;
  std::vector<SignalRule> signals;
  EnvFilter env;
  std::vector<std::string> roots;  // sorted literal paths that a rule of this layer denies or asks to write

  const Rule& rule(uint32_t index) const { return document->rules[index]; }
};

class Snapshot {
 public:
  const std::vector<CompiledLayer>& layers() const { return layers_; }  // [0] is the built-in one
  const ResourceLimits& limits() const { return limits_; }              // the strictest of all layers
  SeccompRules seccomp() const { return seccomp_; }
  const std::vector<std::pair<std::string, std::string>>& env_inject() const { return env_inject_; }
  bool nested_allowed() const { return nested_allowed_; }
  bool allow_privileges() const { return allow_privileges_; }  // set-uid programs are to work
  bool record_every() const { return record_every_; }
  absl::string_view on_daemon_loss() const { return on_daemon_loss_; }  // the strictest: kill over freeze
  bool isolated() const;
  // path with a leading directory that is a link on this host replaced by what it leads to.
  absl::string_view Resolve(absl::string_view path, std::string& storage) const;

  // May this variable reach the agent? why names the layer and the pattern.
  bool EnvAllowed(absl::string_view name, std::string* why = nullptr) const;
  // 0 = no bound.
  int64_t env_max_bytes() const { return env_max_bytes_; }
  int64_t env_max_keys() const { return env_max_keys_; }

 private:
  friend class Compiler;
  std::vector<CompiledLayer> layers_;
  std::vector<std::pair<std::string, std::string>> links_;
  ResourceLimits limits_;
  SeccompRules seccomp_;
  std::vector<std::pair<std::string, std::string>> env_inject_;
  bool nested_allowed_ = true, record_every_ = false, allow_privileges_ = false;
  std::string on_daemon_loss_;
  int64_t env_max_bytes_ = 0, env_max_keys_ = 0;
};

struct CompileResult {
  std::shared_ptr<const Snapshot> snapshot;  // null on errors
  Diagnostics diagnostics;
};

// Layers in any order; at most one base (none = built-in base that allows nothing by default but reads).
// Errors: an undefined variable, a broken pattern, a rule or key that nothing enforces in a layer that
// requires enforcement. Pure; takes milliseconds for thousands of rules: not for the core thread.
CompileResult Compile(const std::vector<LayerInput>& layers, const CompileOptions& options);

}  // namespace agentmon::policy
