#include "daemon/policy/policy_library.h"

#include <google/protobuf/util/message_differencer.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/files.h"
#include "common/policy/lint.h"
#include "common/policy/loader.h"
#include "common/policy/policy_proto.h"
#include "common/policy/shipped.h"

namespace agentmon {
namespace {

namespace fs = std::filesystem;
using policy::LayerKind;

constexpr size_t kLargestFile = 4u << 20;
constexpr size_t kLargestArchive = 256u << 20;
constexpr size_t kMostFiles = 1000;

policy::Diagnostic Problem(absl::string_view file, absl::string_view message) {
  policy::Diagnostic d;
  d.file = std::string(file);
  d.message = std::string(message);
  return d;
}

void Load(PolicyFile& file, absl::string_view text, LayerKind kind) {
  policy::LoadResult loaded = policy::LoadPolicy(text, file.path);
  file.diagnostics = std::move(loaded.diagnostics);
  if (policy::HasErrors(file.diagnostics)) return;
  auto document = std::make_shared<const policy::Document>(std::move(loaded.document));
  policy::Diagnostics findings = policy::Lint(document, kind, policy::CompileOptions());
  const bool compiles = !policy::HasErrors(findings);
  std::move(findings.begin(), findings.end(), std::back_inserter(file.diagnostics));
  if (compiles) file.document = std::move(document);
}

// Who can replace a file decides what it says: each directory above it must be root's (or ours), and writable
// by nobody else but where the sticky bit keeps others from taking names away. Empty = so it is.
std::string WhoElseMayReplace(const fs::path& path) {
  std::error_code error;
  const fs::path real = fs::canonical(path, error);
  if (error) return "";  // reading it tells why
  for (fs::path directory = real.parent_path();; directory = directory.parent_path()) {
    struct stat st {};
    if (::stat(directory.c_str(), &st) != 0) return "";
    const bool ours = st.st_uid == 0 || st.st_uid == ::geteuid();
    if (!ours || ((st.st_mode & 022) != 0 && (st.st_mode & S_ISVTX) == 0)) {
      return absl::StrCat("others than root can replace it: chown root and chmod go-w ", directory.string());
    }
    if (directory == directory.root_path()) return "";
  }
}

// The policy files of a directory by name; what starts with a dot is an editor's, or a ConfigMap's own.
std::vector<fs::path> FilesOf(const std::string& directory, policy::Diagnostics& problems) {
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    const std::string extension = it->path().extension().string();
    if (name[0] == '.' || (extension != ".yaml" && extension != ".yml" && extension != ".json")) continue;
    files.push_back(it->path());
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    problems.push_back(Problem(directory, absl::StrCat("cannot be read: ", error.message())));
  }
  std::sort(files.begin(), files.end());
  if (files.size() > kMostFiles) {
    problems.push_back(Problem(directory, absl::StrCat("more than ", kMostFiles, " policy files")));
    files.resize(kMostFiles);
  }
  return files;
}

PolicyFile ReadOne(const fs::path& path, LayerKind kind) {
  PolicyFile file;
  file.name = path.stem().string();
  file.path = path.string();
  if (const std::string who = WhoElseMayReplace(path); !who.empty()) {
    file.diagnostics.push_back(Problem(file.path, who));
    return file;
  }
  const auto text = ReadRootFile(file.path, kLargestFile);
  if (text.ok())
    Load(file, *text, kind);
  else
    file.diagnostics.push_back(Problem(file.path, text.status().message()));
  return file;
}

PolicyFile FromShipped(const policy::ShippedPolicy& shipped, LayerKind kind) {
  PolicyFile file;
  file.name = std::string(shipped.name);
  file.path = std::string(shipped.path);
  Load(file, shipped.text, kind);
  return file;
}

void AddShipped(PolicyLibrary& library) {
  for (const policy::ShippedPolicy& shipped : policy::ShippedPolicies()) {
    const std::string name(shipped.name);
    if (library.named.count(name) == 0) library.named[name] = FromShipped(shipped, LayerKind::kBase);
  }
}

// A directory that cannot be listed is a file that does not load.
void AddDirectoryProblems(policy::Diagnostics problems, const std::string& directory,
                          PolicyLibrary& library) {
  if (problems.empty()) return;
  PolicyFile file;
  file.name = file.path = directory;
  file.diagnostics = std::move(problems);
  library.floor.push_back(std::move(file));
}

std::shared_ptr<const PolicyLibrary> FromArchive(const v1::PolicyArchive& archive,
                                                 const std::string& default_policy) {
  auto library = std::make_shared<PolicyLibrary>();
  library->default_policy = default_policy;
  const auto convert = [](const std::string& name, const v1::PolicyDocument& message) {
    PolicyFile file;
    file.name = name;
    file.path = message.file();
    policy::Document document = policy::FromProto(message, file.diagnostics);
    if (!policy::HasErrors(file.diagnostics)) {
      file.document = std::make_shared<const policy::Document>(std::move(document));
    }
    return file;
  };
  for (const v1::PolicyDocument& message : archive.floor()) {
    library->floor.push_back(convert(fs::path(message.file()).stem().string(), message));
  }
  for (const auto& [name, message] : archive.named()) library->named[name] = convert(name, message);
  AddShipped(*library);
  return library;
}

}  // namespace

bool PolicyLibrary::ok() const { return Problems().empty(); }

policy::Diagnostics PolicyLibrary::Problems() const {
  policy::Diagnostics problems;
  const auto add = [&](const PolicyFile& file) {
    if (file.document != nullptr) return;
    for (const policy::Diagnostic& d : file.diagnostics) {
      if (d.severity == policy::Severity::kError) problems.push_back(d);
    }
  };
  for (const PolicyFile& file : floor) add(file);
  for (const auto& [name, file] : named) add(file);
  if (named.count(default_policy) == 0) {
    problems.push_back(
        Problem("default_policy", absl::StrCat("there is no policy named '", default_policy, "'")));
  }
  return problems;
}

std::shared_ptr<const policy::Document> PolicyLibrary::Find(const std::string& name) const {
  const auto it = named.find(name);
  return it == named.end() ? nullptr : it->second.document;
}

std::shared_ptr<const PolicyLibrary> ReadPolicyLibrary(const PolicyPlaces& places, bool had_floor) {
  auto library = std::make_shared<PolicyLibrary>();
  library->default_policy = places.default_policy;
  policy::Diagnostics problems;
  std::error_code error;
  if (had_floor && !fs::exists(places.floor_dir, error) && !error) {
    problems.push_back(
        Problem(places.floor_dir,
                "the directory is gone, and with it the floor: put it back, empty where no floor is wanted"));
  }
  for (const fs::path& path : FilesOf(places.floor_dir, problems)) {
    library->floor.push_back(ReadOne(path, LayerKind::kFloor));
  }
  AddDirectoryProblems(std::move(problems), places.floor_dir, *library);
  for (const std::string& directory : {places.policies_dir, places.shipped_dir}) {
    problems.clear();
    for (const fs::path& path : FilesOf(directory, problems)) {
      const std::string name = path.stem().string();
      if (library->named.count(name) == 0) library->named[name] = ReadOne(path, LayerKind::kBase);
    }
    AddDirectoryProblems(std::move(problems), directory, *library);
  }
  AddShipped(*library);
  return library;
}

bool HadFloor(const std::string& archive) {
  const auto bytes = ReadRootFile(archive, kLargestArchive);
  v1::PolicyArchive message;
  return bytes.ok() && message.ParseFromString(*bytes) && !message.floor().empty();
}

std::shared_ptr<const PolicyLibrary> FallbackLibrary(const PolicyLibrary& broken, const std::string& archive,
                                                     std::string* why) {
  if (const auto bytes = ReadRootFile(archive, kLargestArchive); bytes.ok()) {
    v1::PolicyArchive message;
    if (message.ParseFromString(*bytes)) {
      auto library = std::make_shared<PolicyLibrary>(*FromArchive(message, broken.default_policy));
      if (library->ok()) {
        library->stands_in = true;
        *why = "no session begins, and running ones keep the policies of the last good reading";
        return library;
      }
    }
  }
  auto library = std::make_shared<PolicyLibrary>();
  library->stands_in = true;
  library->default_policy = "default";
  library->floor.push_back(FromShipped(*policy::FindShipped("default"), LayerKind::kFloor));
  for (const PolicyFile& file : broken.floor) {
    if (file.document != nullptr) library->floor.push_back(file);
  }
  AddShipped(*library);
  *why =
      "no earlier reading is known: no session begins, and running ones have the shipped policy 'default' as "
      "their floor, and those files of the floor that load";
  return library;
}

void ToArchive(const PolicyLibrary& library, v1::PolicyArchive& archive) {
  for (const PolicyFile& file : library.floor) {
    if (file.document != nullptr) policy::ToProto(*file.document, *archive.add_floor());
  }
  for (const auto& [name, file] : library.named) {
    if (file.document != nullptr) policy::ToProto(*file.document, (*archive.mutable_named())[name]);
  }
}

bool SamePolicies(const PolicyLibrary& a, const PolicyLibrary& b) {
  if (a.stands_in != b.stands_in || a.default_policy != b.default_policy ||
      a.floor.size() != b.floor.size() || a.named.size() != b.named.size()) {
    return false;
  }
  const auto same = [](const PolicyFile& x, const PolicyFile& y) {
    if (x.document == nullptr || y.document == nullptr) return x.document == y.document;
    v1::PolicyDocument one, two;
    policy::ToProto(*x.document, one);
    policy::ToProto(*y.document, two);
    return google::protobuf::util::MessageDifferencer::Equals(one, two);
  };
  for (size_t i = 0; i < a.floor.size(); ++i) {
    if (!same(a.floor[i], b.floor[i])) return false;
  }
  for (const auto& [name, file] : a.named) {
    const auto other = b.named.find(name);
    if (other == b.named.end() || !same(file, other->second)) return false;
  }
  return true;
}

}  // namespace agentmon
