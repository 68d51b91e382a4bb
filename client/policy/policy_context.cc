#include <pwd.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/policy/policy_cli.h"
#include "common/policy/loader.h"
#include "common/policy/shipped.h"

extern char** environ;

namespace agentmon::policy_cli {

namespace fs = std::filesystem;

std::pair<std::string, std::string> FindProject(const std::string& directory) {
  static constexpr const char* kMarkers[] = {"go.mod", "package.json", "Cargo.toml", "pyproject.toml"};
  std::string workspace, git;
  std::error_code error;
  for (fs::path d = directory; !d.empty(); d = d.parent_path()) {
    for (const char* marker : kMarkers) {
      if (workspace.empty() && fs::exists(d / marker, error)) workspace = d.string();
    }
    if (fs::exists(d / ".git", error)) {
      git = d.string();
      if (workspace.empty()) workspace = git;
      break;
    }
    if (d == d.root_path()) break;
  }
  if (workspace.empty()) workspace = directory;
  return {workspace, git};
}

PolicyContext ContextOfProcess() {
  std::error_code error;
  return ContextOf(fs::current_path(error).string());
}

PolicyContext ContextOf(const std::string& directory) {
  PolicyContext context;
  // The user database, not HOME: an agent's environment must not move rules.
  context.user = absl::StrCat(getuid());
  if (const passwd* user = getpwuid(getuid())) {
    context.home = user->pw_dir;
    context.user = user->pw_name;
  }
  const auto [workspace, git] = FindProject(directory);
  context.workspace = workspace;
  auto& variables = context.compile.variables;
  variables.derived = {{"HOME", context.home.empty() ? "/nonexistent" : context.home},
                       {"USER", context.user},
                       {"UID", absl::StrCat(getuid())},
                       {"WORKSPACE", workspace},
                       {"TMPDIR", "/tmp"}};
  variables.derived["GIT_ROOT"] = git.empty() ? workspace : git;
  for (char** e = environ; *e != nullptr; ++e) {
    const absl::string_view entry = *e;
    const size_t equals = entry.find('=');
    if (equals != absl::string_view::npos)
      variables.session[std::string(entry.substr(0, equals))] = std::string(entry.substr(equals + 1));
  }
  context.compile.builtin = policy::InstalledPaths("/var/lib/agentmon", "/run/agentmon", context.home);
  return context;
}

bool NamesFile(absl::string_view name) {
  return absl::StrContains(name, '/') || absl::EndsWith(name, ".yaml") || absl::EndsWith(name, ".yml") ||
         absl::EndsWith(name, ".json");
}

absl::StatusOr<policy::PolicyText> FindPolicy(const PolicyContext& context, absl::string_view name) {
  const bool file = NamesFile(name);
  std::vector<std::string> paths;
  if (file)
    paths.emplace_back(name);
  else
    for (const std::string& directory : context.directories)
      paths.push_back(absl::StrCat(directory, "/", name, ".yaml"));
  for (const std::string& path : paths) {
    auto text = policy::ReadPolicyFile(path);
    if (text.ok()) return policy::PolicyText{*std::move(text), path};
    if (!absl::IsNotFound(text.status())) return text.status();
  }
  const policy::ShippedPolicy* shipped = file ? nullptr : policy::FindShipped(name);
  if (shipped != nullptr) {
    return policy::PolicyText{std::string(shipped->text), std::string(shipped->path)};
  }
  return absl::NotFoundError(
      file ? absl::StrCat(name, ": no such file")
           : absl::StrCat("no policy named ", name, " in ", absl::StrJoin(context.directories, ", ")));
}

std::shared_ptr<const policy::Document> LoadNamed(const PolicyContext& context, absl::string_view name,
                                                  std::ostream& err) {
  auto text = FindPolicy(context, name);
  if (!text.ok()) {
    err << text.status().message() << "\n";
    return nullptr;
  }
  policy::LoadResult loaded = policy::LoadPolicy(text->text, text->path);
  for (const policy::Diagnostic& d : loaded.diagnostics) err << policy::FormatDiagnostic(d) << "\n";
  if (!loaded.ok()) return nullptr;
  return std::make_shared<const policy::Document>(std::move(loaded.document));
}

}  // namespace agentmon::policy_cli
