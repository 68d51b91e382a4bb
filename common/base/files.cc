#include "common/base/files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/base/unique_fd.h"

namespace agentmon {

absl::StatusOr<std::string> ReadRootFile(const std::string& path, size_t max_bytes) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  if (!fd.valid()) return ErrnoStatus(errno, absl::StrCat("read ", path));
  struct stat st {};
  if (::fstat(fd.get(), &st) != 0) return ErrnoStatus(errno, absl::StrCat("stat ", path));
  if (!S_ISREG(st.st_mode)) return absl::InvalidArgumentError(absl::StrCat(path, " is not a regular file"));
  if ((st.st_uid != 0 && st.st_uid != ::geteuid()) || (st.st_mode & 022) != 0) {
    return absl::PermissionDeniedError(
        absl::StrCat(path, " can be written by others than root; chown root and chmod go-w it"));
  }
  std::string bytes;
  char buffer[1 << 16];
  for (;;) {
    const ssize_t n = ::read(fd.get(), buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, absl::StrCat("read ", path));
    if (n == 0) return bytes;
    bytes.append(buffer, static_cast<size_t>(n));
    if (bytes.size() > max_bytes) {
      return absl::InvalidArgumentError(absl::StrCat(path, " is larger than ", max_bytes >> 20, " MiB"));
    }
  }
}

absl::Status ReplaceFile(const std::string& path, absl::string_view bytes, mode_t mode, Outlives outlives) {
  const std::string fresh = absl::StrCat(path, ".new");
  {
    const UniqueFd fd(::open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, mode));
    if (!fd.valid()) return ErrnoStatus(errno, absl::StrCat("open ", fresh));
    while (!bytes.empty()) {
      const ssize_t n = ::write(fd.get(), bytes.data(), bytes.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return ErrnoStatus(errno, absl::StrCat("write ", fresh));
      bytes.remove_prefix(static_cast<size_t>(n));
    }
    if (outlives == Outlives::kMachine && ::fsync(fd.get()) != 0)
      return ErrnoStatus(errno, absl::StrCat("sync ", fresh));
  }
  if (::rename(fresh.c_str(), path.c_str()) != 0) return ErrnoStatus(errno, absl::StrCat("rename to ", path));
  return absl::OkStatus();
}

}  // namespace agentmon
