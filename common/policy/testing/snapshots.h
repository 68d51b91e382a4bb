// Snapshots for tests, from policy text.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/policy/evaluate.h"
#include "common/policy/loader.h"

namespace agentmon::policy {

// HOME /home/u, USER u, UID 1000, WORKSPACE and GIT_ROOT /home/u/ws, TMPDIR /tmp; our own objects below
// /var/lib/agentmon and /run/agentmon.
CompileOptions TestOptions();

struct TestLayer {
  LayerKind kind;
  std::string text;
  std::string file;
};

// Loads and compiles; throws std::runtime_error with all diagnostics when either fails.
std::shared_ptr<const Snapshot> MakeSnapshot(const std::vector<TestLayer>& layers,
                                             const CompileOptions& options = TestOptions());
std::shared_ptr<const Snapshot> MakeBase(absl::string_view rules);  // version and name are put before

// All diagnostics of loading (and, when that worked, compiling) a base policy, one a line.
std::string Complaints(absl::string_view text, bool compile = true);

// Shorthands: the effect ("allow", "deny", "ask") of an act.
class Judge {
 public:
  explicit Judge(std::shared_ptr<const Snapshot> snapshot) : snapshot_(std::move(snapshot)) {
    options.approver = true;
  }
  explicit Judge(absl::string_view rules) : Judge(MakeBase(rules)) {}
  std::string File(uint32_t operations, absl::string_view path, absl::string_view new_path = {}) const;
  std::string Exec(absl::string_view exe,
                   std::vector<absl::string_view> arguments) const;  // argv[0] is its name
  std::string Connect(absl::string_view address, uint16_t port, uint8_t protocol = kTcp,
                      absl::string_view name = {}) const;
  std::string Query(absl::string_view name) const;
  std::string Unix(uint32_t operation, absl::string_view path) const;
  std::string Signal(int signal, uint32_t target) const;
  Verdict Of(const Subject& subject) const { return Evaluate(*snapshot_, subject, options); }
  const Snapshot& snapshot() const { return *snapshot_; }
  EvaluateOptions options;

 private:
  std::shared_ptr<const Snapshot> snapshot_;
};

}  // namespace agentmon::policy
