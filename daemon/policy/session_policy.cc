#include "daemon/policy/session_policy.h"

#include <grp.h>
#include <pwd.h>
#include <unistd.h>

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/refusal.h"
#include "common/policy/builtin.h"
#include "common/policy/glob.h"
#include "common/policy/policy_proto.h"
#include "daemon/policy/gate.h"

namespace agentmon {
namespace {

using policy::LayerKind;

constexpr int kMostDocuments = 64;
constexpr int kMostVariables = 256;
constexpr size_t kLongestVariable = 4096;
constexpr size_t kLargestChoice = 4u << 20;
constexpr size_t kMostPatterns = 20'000;
constexpr size_t kShownErrors = 5;
constexpr char kNowhere[] = "/nonexistent";  // Debian's name for the home of those who have none

void AddError(policy::Diagnostics& diagnostics, absl::string_view where, absl::string_view message,
              absl::string_view suggestion = "") {
  policy::Diagnostic d;
  d.file = std::string(where);
  d.message = std::string(message);
  d.suggestion = std::string(suggestion);
  diagnostics.push_back(std::move(d));
}

std::string NamesOf(const PolicyLibrary& library) {
  std::vector<std::string> names;
  for (const auto& [name, file] : library.named) {
    if (file.document != nullptr) names.push_back(name);
  }
  return absl::StrJoin(names, ", ");
}

// Collects the layers of a choice.
class Layers {
 public:
  Layers(const PolicyLibrary& library, CompiledPolicy& out) : library_(library), out_(out) {}

  void AddFloor() {
    for (const PolicyFile& file : library_.floor) {
      if (file.document != nullptr) out_.layers.push_back({LayerKind::kFloor, file.document});
    }
  }
  void AddNamed(LayerKind kind, const std::string& name) {
    const auto document = library_.Find(name);
    if (document == nullptr) {
      return AddError(out_.diagnostics, name, "there is no policy of this name",
                      absl::StrCat("one of ", NamesOf(library_), ", or a file with a slash in its name"));
    }
    out_.layers.push_back({kind, document});
  }
  void AddDocument(LayerKind kind, const v1::PolicyDocument& message) {
    for (const v1::Rule& rule : message.rules()) {
      for (const auto* texts : {&rule.paths(), &rule.domains(), &rule.commands()}) {
        for (const v1::PolicyText& text : *texts)
          out_.sent_patterns += policy::CountAlternatives(text.value());
      }
      out_.sent_patterns += rule.cidrs_size() + rule.args_patterns_size();
    }
    if (out_.sent_patterns > kMostPatterns) {
      return AddError(out_.diagnostics, message.file(),
                      absl::StrCat("more than ", kMostPatterns, " patterns, each alternative counted"));
    }
    policy::Document document = policy::FromProto(message, out_.diagnostics);
    out_.layers.push_back({kind, std::make_shared<const policy::Document>(std::move(document))});
  }
  void AddPart(LayerKind kind, const v1::PolicyChoice::Part& part) {
    if (part.has_document())
      AddDocument(kind, part.document());
    else
      AddNamed(kind, part.name().empty() ? library_.default_policy : part.name());
  }

 private:
  const PolicyLibrary& library_;
  CompiledPolicy& out_;
};

bool IsAbove(const std::string& directory, const std::string& path) {
  return directory == path || directory == "/" || absl::StartsWith(path, absl::StrCat(directory, "/"));
}

policy::CompileOptions OptionsFor(const PolicyRequest& request, const OwnPaths& own) {
  policy::CompileOptions options;
  auto& derived = options.variables.derived;
  const PolicyOwner& owner = request.owner;
  derived["HOME"] = owner.home.empty() ? kNowhere : owner.home;
  derived["USER"] = owner.user;
  derived["UID"] = absl::StrCat(owner.uid);
  derived["TMPDIR"] = "/tmp";
  const std::string workspace = request.workspace.empty() ? kNowhere : request.workspace;
  const auto root = [&](const std::string& given) {
    return !given.empty() && IsAbove(given, workspace) ? given : workspace;
  };
  derived["WORKSPACE"] = root(request.choice.project_root());
  derived["GIT_ROOT"] = root(request.choice.git_root());
  for (const auto& [name, value] : request.choice.environment()) options.variables.session[name] = value;
  options.builtin = policy::InstalledPaths(own.state_dir, own.runtime_dir, owner.home);
  options.builtin.read_only.push_back(own.config_dir);
  return options;
}

std::string EnvText(const policy::Snapshot& snapshot) {
  std::vector<std::string> parts;
  for (const policy::CompiledLayer& layer : snapshot.layers()) {
    if (!layer.env.given) continue;
    for (const policy::Text& text : layer.document->env.allow) parts.push_back(absl::StrCat("+", text.value));
    for (const policy::Text& text : layer.document->env.deny) parts.push_back(absl::StrCat("-", text.value));
    parts.push_back(";");
  }
  return absl::StrCat(absl::StrJoin(parts, " "), snapshot.env_max_bytes(), " ", snapshot.env_max_keys());
}

}  // namespace

PolicyOwner LookUpOwner(uid_t uid) {
  PolicyOwner owner;
  owner.uid = uid;
  owner.user = absl::StrCat(uid);
  passwd entry{}, *found = nullptr;
  std::vector<char> buffer(64 * 1024);
  if (::getpwuid_r(uid, &entry, buffer.data(), buffer.size(), &found) != 0 || found == nullptr) return owner;
  owner.user = found->pw_name;
  if (found->pw_dir != nullptr && found->pw_dir[0] == '/') owner.home = found->pw_dir;
  int count = 256;
  owner.groups.resize(count);
  if (::getgrouplist(found->pw_name, found->pw_gid, owner.groups.data(), &count) < 0) {
    owner.groups.resize(count);
    if (::getgrouplist(found->pw_name, found->pw_gid, owner.groups.data(), &count) < 0) count = 0;
  }
  owner.groups.resize(count);
  return owner;
}

CompiledPolicy CompileSessionPolicy(const PolicyLibrary& library, const PolicyRequest& request,
                                    const OwnPaths& own) {
  CompiledPolicy out;
  const v1::PolicyChoice& choice = request.choice;
  if (choice.user_size() + choice.further_size() > kMostDocuments) {
    AddError(out.diagnostics, "policy", absl::StrCat("more than ", kMostDocuments, " files"));
  }
  if (choice.ByteSizeLong() > kLargestChoice) AddError(out.diagnostics, "policy", "larger than 4 MiB");
  if (choice.environment_size() > kMostVariables) {
    AddError(out.diagnostics, "policy", absl::StrCat("names more than ", kMostVariables, " variables"));
  }
  for (const auto& [name, value] : choice.environment()) {
    if (value.size() > kLongestVariable) {
      AddError(out.diagnostics, name, "the value of this variable is longer than 4 KiB");
    }
  }
  if (policy::HasErrors(out.diagnostics)) return out;
  Layers layers(library, out);
  layers.AddFloor();
  layers.AddPart(LayerKind::kBase, choice.base());
  for (const v1::PolicyDocument& document : choice.user()) layers.AddDocument(LayerKind::kUser, document);
  for (const v1::PolicyChoice::Part& part : choice.further()) layers.AddPart(LayerKind::kSession, part);
  if (policy::HasErrors(out.diagnostics)) return out;
  policy::CompileResult compiled = policy::Compile(out.layers, OptionsFor(request, own));
  out.snapshot = std::move(compiled.snapshot);
  std::move(compiled.diagnostics.begin(), compiled.diagnostics.end(), std::back_inserter(out.diagnostics));
  return out;
}

std::shared_ptr<const policy::Snapshot> ClosedSnapshot(const PolicyLibrary& library,
                                                       const PolicyRequest& request, const OwnPaths& own) {
  std::vector<policy::LayerInput> layers{{LayerKind::kBase, policy::EmptyBase()}};
  const policy::CompileOptions options = OptionsFor(request, own);
  for (const PolicyFile& file : library.floor) {
    if (file.document == nullptr) continue;
    layers.push_back({LayerKind::kFloor, file.document});
    if (policy::Compile(layers, options).snapshot == nullptr) layers.pop_back();
  }
  return policy::Compile(layers, options).snapshot;
}

absl::Status PolicyRefusal(const policy::Diagnostics& diagnostics) {
  std::vector<std::string> lines;
  size_t errors = 0;
  for (const policy::Diagnostic& d : diagnostics) {
    if (d.severity != policy::Severity::kError) continue;
    if (++errors <= kShownErrors) lines.push_back(policy::FormatDiagnostic(d));
  }
  if (errors > kShownErrors) lines.push_back(absl::StrCat("and ", errors - kShownErrors, " more"));
  return Refusal(absl::StatusCode::kInvalidArgument, "BAD_POLICY", absl::StrJoin(lines, "; "));
}

std::vector<std::string> NeedsNewSession(const policy::Snapshot& running, const policy::Snapshot& wanted) {
  std::vector<std::string> out;
  const policy::SeccompRules a = running.seccomp(), b = wanted.seccomp();
  const auto differ = [&](bool x, bool y, absl::string_view what) {
    if (x != y) out.push_back(absl::StrCat("linux.seccomp: ", what, y ? " is refused" : " is let through"));
  };
  differ(a.ptrace, b.ptrace, "ptrace");
  differ(a.bpf, b.bpf, "bpf");
  differ(a.kernel_modules, b.kernel_modules, "loading of kernel modules");
  differ(a.mount_namespace, b.mount_namespace, "mount and namespaces");
  if (running.allow_privileges() != wanted.allow_privileges())
    out.push_back(wanted.allow_privileges() ? "allow_privileges: set-uid programs work"
                                            : "allow_privileges: set-uid programs gain nothing");
  if (EnvText(running) != EnvText(wanted)) out.push_back("env: the variables that an agent gets");
  if (running.env_inject() != wanted.env_inject()) out.push_back("env_inject: variables that are set");
  if (!Enforces(running) && Enforces(wanted))
    out.push_back("rules that stop something, where none did before");
  if (running.isolated() != wanted.isolated()) {
    out.push_back(wanted.isolated() ? "posture: isolate" : "posture: no longer isolate");
  }
  return out;
}

}  // namespace agentmon
