#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/policy/policy_cli.h"
#include "common/policy/loader.h"
#include "common/policy/policy_proto.h"

namespace agentmon::policy_cli {

namespace fs = std::filesystem;

namespace {

class ChoiceMaker {
 public:
  explicit ChoiceMaker(const PolicyContext& context) : context_(context) {}

  void AddPart(const std::string& name_or_file, v1::PolicyChoice::Part& part) {
    if (NamesFile(name_or_file))
      AddFile(name_or_file, *part.mutable_document());
    else
      part.set_name(name_or_file);
  }

  void AddFile(const std::string& path, v1::PolicyDocument& out) {
    const auto text = policy::ReadPolicyFile(path);
    if (!text.ok()) return problems_.push_back(std::string(text.status().message()));
    const policy::LoadResult loaded = policy::LoadPolicy(*text, path);
    for (const policy::Diagnostic& d : loaded.diagnostics) {
      if (d.severity == policy::Severity::kError) problems_.push_back(policy::FormatDiagnostic(d));
    }
    if (!loaded.ok()) return;
    policy::ToProto(loaded.document, out);
    // Who reads it in the timeline is in another directory.
    std::error_code error;
    if (const fs::path absolute = fs::absolute(path, error); !error)
      out.set_file(absolute.lexically_normal().string());
    const policy::Variables& known = context_.compile.variables;
    for (const std::string& name : policy::VariablesOf(loaded.document)) {
      const auto value = known.session.find(name);
      if (!known.derived.contains(name) && value != known.session.end()) {
        (*choice.mutable_environment())[name] = value->second;
      }
    }
  }

  absl::StatusOr<v1::PolicyChoice> Take() {
    if (!problems_.empty()) return absl::InvalidArgumentError(absl::StrJoin(problems_, "\n"));
    return std::move(choice);
  }

  v1::PolicyChoice choice;

 private:
  const PolicyContext& context_;
  std::vector<std::string> problems_;
};

}  // namespace

std::string UserPolicyDirectory(const PolicyContext& context) {
  return context.home.empty() ? "" : absl::StrCat(context.home, "/.config/agentmon/policy.d");
}

absl::StatusOr<v1::PolicyChoice> MakeChoice(const PolicyContext& context,
                                            const std::vector<std::string>& policies) {
  ChoiceMaker maker(context);
  for (size_t i = 0; i < policies.size(); ++i) {
    maker.AddPart(policies[i], i == 0 ? *maker.choice.mutable_base() : *maker.choice.add_further());
  }
  std::vector<std::string> files;
  std::error_code error;
  const std::string directory = UserPolicyDirectory(context);
  if (!directory.empty()) {
    for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
      const std::string name = it->path().filename().string();
      if (name[0] != '.' && NamesFile(name)) files.push_back(it->path().string());
    }
    if (error && error != std::errc::no_such_file_or_directory) {
      return absl::PermissionDeniedError(
          absl::StrCat("your policies in ", directory, " cannot be read: ", error.message()));
    }
  }
  std::sort(files.begin(), files.end());
  for (const std::string& file : files) maker.AddFile(file, *maker.choice.add_user());
  const auto& derived = context.compile.variables.derived;
  if (const auto root = derived.find("WORKSPACE"); root != derived.end())
    maker.choice.set_project_root(root->second);
  if (const auto root = derived.find("GIT_ROOT"); root != derived.end())
    maker.choice.set_git_root(root->second);
  return maker.Take();
}

}  // namespace agentmon::policy_cli
