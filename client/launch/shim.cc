#include "client/launch/shim.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <climits>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace agentmon {
namespace {

constexpr char kInstalled[] = "/usr/libexec/agentmon";

std::string OwnDirectory() {
  char path[PATH_MAX];
  const ssize_t size = readlink("/proc/self/exe", path, sizeof path);
  if (size <= 0) return "";
  const absl::string_view whole(path, static_cast<size_t>(size));
  return std::string(whole.substr(0, whole.rfind('/')));
}

// Nobody gets CAP_SYS_ADMIN where it is not in the bounding set (containers); a file capability gives nothing
// under no_new_privs or on a nosuid mount.
bool NsWouldWork(const std::string& path) {
  if (access(path.c_str(), X_OK) != 0 || prctl(PR_CAPBSET_READ, CAP_SYS_ADMIN, 0, 0, 0) != 1) return false;
  if (geteuid() == 0) return true;
  struct statvfs file_system {};
  return getxattr(path.c_str(), "security.capability", nullptr, 0) > 0 &&
         prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 0 && statvfs(path.c_str(), &file_system) == 0 &&
         (file_system.f_flag & ST_NOSUID) == 0;
}

}  // namespace

absl::StatusOr<ShimPrograms> FindShimIn(const std::string& directory) {
  ShimPrograms programs{absl::StrCat(directory, "/agentmon-shim"), absl::StrCat(directory, "/agentmon-ns")};
  if (access(programs.shim.c_str(), X_OK) != 0) return ErrnoStatus(errno, programs.shim);
  if (!NsWouldWork(programs.ns)) programs.ns.clear();
  return programs;
}

absl::StatusOr<ShimPrograms> FindShimFrom(const std::string& own, const std::string& installed) {
  for (const std::string& directory : {own, installed}) {
    if (absl::StatusOr<ShimPrograms> found = FindShimIn(directory); found.ok()) return found;
  }
  return absl::NotFoundError(absl::StrCat("agentmon-shim is neither in ", own, " nor in ", installed,
                                          ", or may not be executed: install the agentmon package again"));
}

absl::StatusOr<ShimPrograms> FindShim() { return FindShimFrom(OwnDirectory(), kInstalled); }

std::vector<std::string> ShimArguments(const std::string& program, const ShimCall& call) {
  std::vector<std::string> arguments{program, "--socket", call.socket, "--token-fd",
                                     absl::StrCat(call.token_fd)};
  for (const int fd : call.keep_fds) {
    arguments.push_back("--keep-fd");
    arguments.push_back(absl::StrCat(fd));
  }
  arguments.push_back("--");
  arguments.insert(arguments.end(), call.command.begin(), call.command.end());
  return arguments;
}

std::vector<char*> PointersTo(const std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (const std::string& word : words) pointers.push_back(const_cast<char*>(word.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

std::vector<std::string> ProgramsToTry(const ShimPrograms& programs, bool mount_namespace) {
  if (!mount_namespace || programs.ns.empty()) return {programs.shim};
  return {programs.ns, programs.shim};
}

absl::StatusOr<TokenPipe> MakeTokenPipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return ErrnoStatus(errno, "make a pipe for the token");
  return TokenPipe{UniqueFd(ends[0]), UniqueFd(ends[1])};
}

absl::Status WriteToken(TokenPipe& pipe, const std::string& token) {
  // Fits into an empty pipe at once, so this neither blocks nor writes a part.
  const ssize_t written = write(pipe.write_end.get(), token.data(), token.size());
  if (written != static_cast<ssize_t>(token.size())) return ErrnoStatus(errno, "write the token");
  pipe.write_end.Reset();
  return absl::OkStatus();
}

}  // namespace agentmon
