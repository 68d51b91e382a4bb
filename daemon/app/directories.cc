#include "daemon/app/directories.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/stable_hash.h"
#include "common/base/status.h"
#include "common/base/unique_fd.h"

namespace agentmon {

absl::Status PrepareDirectory(const std::string& path, mode_t mode) {
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
  if (error) return ErrnoStatus(error.value(), absl::StrCat("make the parent of ", path));
  if (::mkdir(path.c_str(), mode) != 0 && errno != EEXIST)
    return ErrnoStatus(errno, absl::StrCat("make ", path));
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!fd.valid()) return ErrnoStatus(errno, absl::StrCat("open directory ", path));
  struct stat st {};
  if (::fstat(fd.get(), &st) != 0) return ErrnoStatus(errno, absl::StrCat("stat ", path));
  if (st.st_uid != ::geteuid()) {
    return absl::PermissionDeniedError(
        absl::StrCat(path, " belongs to uid ", st.st_uid, ", not to the daemon; chown it or choose another"));
  }
  if ((st.st_mode & 022) != 0) {
    return absl::PermissionDeniedError(
        absl::StrCat(path, " can be written by others; chmod go-w it or choose another"));
  }
  if ((st.st_mode & 07777) != mode && ::fchmod(fd.get(), mode) != 0) {
    return ErrnoStatus(errno, absl::StrCat("chmod ", path));
  }
  return absl::OkStatus();
}

std::string InstanceName(const std::string& runtime_dir) {
  std::string path = std::filesystem::path(runtime_dir).lexically_normal().string();
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  if (path == "/run/agentmon") return kMainInstance;
  return absl::StrFormat("%016x", StableHash(path));
}

}  // namespace agentmon
