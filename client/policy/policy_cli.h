// The verbs of `agentmon policy` that need no daemon: each takes parsed options, writes data to out and
// problems to err, and returns an exit status: 0 good, 1 a negative answer, 2 usage (a file that is not there
// too).
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "agentmon/v1/policy.pb.h"
#include "common/policy/lint.h"
#include "common/policy/table.h"

namespace agentmon::policy_cli {

// Where policies are looked for by name, first match wins, and what variables stand for.
struct PolicyContext {
  std::vector<std::string> directories = {"/etc/agentmon/policies", "/usr/share/agentmon/policies"};
  std::string home, user, workspace;
  policy::CompileOptions compile;
};

// From the process: HOME, USER, the environment, and the project around the current directory (the nearest
// directory with .git, go.mod, package.json, Cargo.toml or pyproject.toml; the search stops at .git).
PolicyContext ContextOfProcess();
// The same, around another directory.
PolicyContext ContextOf(const std::string& directory);
// {workspace, git root} of a directory; the directory itself when there is no marker.
std::pair<std::string, std::string> FindProject(const std::string& directory);

// Is this a file's name, rather than a policy's? Anything with a slash or .yaml, .yml, .json at its end.
bool NamesFile(absl::string_view name_or_file);

// What a session asks the daemon for: the first of `policies` is the base, the others tighten it; none = the
// daemon's default. Files are read and parsed here, and those of ~/.config/agentmon/policy.d are added; names
// are left to the daemon. The error has all problems, one a line.
absl::StatusOr<v1::PolicyChoice> MakeChoice(const PolicyContext& context,
                                            const std::vector<std::string>& policies);
// The user's own layer.
std::string UserPolicyDirectory(const PolicyContext& context);

// A name of an installed policy, or a file (anything with a slash or .yaml, .yml, .json at its end).
absl::StatusOr<policy::PolicyText> FindPolicy(const PolicyContext& context, absl::string_view name_or_file);

// Loads and prints all diagnostics to err; null when it has errors or is not there.
std::shared_ptr<const policy::Document> LoadNamed(const PolicyContext& context,
                                                  absl::string_view name_or_file, std::ostream& err);

int Show(const PolicyContext& context, const std::string& policy, std::ostream& out, std::ostream& err);
int Validate(const PolicyContext& context, const std::vector<std::string>& files, std::ostream& out,
             std::ostream& err);

struct LintOptions {
  std::vector<std::string> files;
  policy::LayerKind layer = policy::LayerKind::kBase;
};
int Lint(const PolicyContext& context, const LintOptions& options, std::ostream& out, std::ostream& err);

struct TestOptions {
  std::vector<std::string> tables;
  bool junit = false;    // JUnit XML in place of text
  bool verbose = false;  // passed rows too
};
int Test(const PolicyContext& context, const TestOptions& options, std::ostream& out, std::ostream& err);

struct ExplainOptions {
  std::vector<std::string> policies;  // the first is the base; none = default
  std::vector<std::string> floor;     // files of the floor
  std::string verb, subject;
  int depth = 0;
  bool approver = true;
};
// Exit status 1 when the act is stopped.
int Explain(const PolicyContext& context, const ExplainOptions& options, std::ostream& out,
            std::ostream& err);

// Rules that were added, removed or changed; 1 when there are any.
int Diff(const PolicyContext& context, const std::string& a, const std::string& b, std::ostream& out,
         std::ostream& err);
// "-" = out. An existing file is left alone (1).
int Init(const std::string& file, std::ostream& out, std::ostream& err);
int Schema(std::ostream& out);

}  // namespace agentmon::policy_cli
