#include "client/connection/daemon_choice.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "client/connection/socket.h"
#include "common/base/files.h"
#include "common/base/status.h"
#include "common/policy/yaml_tree.h"

namespace agentmon {
namespace {

constexpr size_t kMaxBytes = 1 << 20;  // as the daemon's

std::string ConfigPath(const std::string& root) { return absl::StrCat(root, "etc/agentmon/agentmond.yaml"); }

bool Exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

bool IsSocket(const std::string& path) {
  struct stat status {};
  return !path.empty() && stat(path.c_str(), &status) == 0 && S_ISSOCK(status.st_mode);
}

// Null when there is no such key, or the value is no mapping.
const policy::YamlNode* Member(const policy::YamlNode* map, absl::string_view key) {
  if (map == nullptr) return nullptr;
  for (const auto& [name, value] : map->entries) {
    if (name->scalar == key) return value;
  }
  return nullptr;
}

}  // namespace

bool IsInstalled(const std::string& root) {
  if (Exists(ConfigPath(root))) return true;
  for (const char* directory : {"etc", "run", "usr/local/lib", "usr/lib", "lib"}) {
    if (Exists(absl::StrCat(root, directory, "/systemd/system/agentmon.socket"))) return true;
  }
  return false;
}

absl::Status MayUseOwnDaemon(const std::string& root) {
  if (!IsInstalled(root)) return absl::OkStatus();
  const std::string path = ConfigPath(root);
  const absl::Status refused = absl::PermissionDeniedError(absl::StrCat(
      "agentmon is installed on this host, and its administrator does not let users run sessions "
      "under daemons of their own: ",
      path, " would have to say 'client: {fallback: user}'"));
  if (!Exists(path)) return refused;
  const auto text = ReadRootFile(path, kMaxBytes);
  if (!text.ok())
    return absl::PermissionDeniedError(
        absl::StrCat("whether users may run daemons of their own cannot be told: ", text.status().message()));
  policy::Diagnostics problems;
  const policy::YamlTree tree = policy::YamlTree::Parse(*text, path, problems);
  if (!problems.empty())
    return absl::PermissionDeniedError(absl::StrCat(
        "whether users may run daemons of their own cannot be told: ", path, " is no valid YAML"));
  const policy::YamlNode* fallback = Member(Member(tree.root(), "client"), "fallback");
  return fallback != nullptr && fallback->scalar == "user" ? absl::OkStatus() : refused;
}

std::string OwnSocket() {
  const char* directory = getenv("XDG_RUNTIME_DIR");
  if (directory == nullptr || directory[0] != '/') return "";
  return absl::StrCat(directory, "/agentmon/agentmond.sock");
}

absl::StatusOr<DaemonChoice> ChooseDaemon(const std::string& socket, bool user, const std::string& root) {
  DaemonChoice choice;
  if (user) {
    if (geteuid() == 0)
      return absl::PermissionDeniedError("--user is for an ordinary user, and you are root");
    RETURN_IF_ERROR(MayUseOwnDaemon(root));
    choice.own = true;
    choice.socket = socket.empty() ? OwnSocket() : socket;
    if (choice.socket.empty())
      return absl::UnavailableError(
          "XDG_RUNTIME_DIR is not set, so that the user's own daemon cannot be found: name its socket with "
          "--socket");
    return choice;
  }
  choice.socket = SocketPath(socket);
  if (choice.socket != kDefaultSocket || !socket.empty()) return choice;
  choice.waits = IsInstalled(root);
  if (choice.waits || geteuid() == 0 || IsSocket(kDefaultSocket) || !IsSocket(OwnSocket())) return choice;
  choice.socket = OwnSocket();
  choice.own = choice.fell = true;
  return choice;
}

}  // namespace agentmon
