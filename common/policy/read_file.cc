// The one file of this library that does I/O.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/base/unique_fd.h"
#include "common/policy/loader.h"

namespace agentmon::policy {

absl::StatusOr<std::string> ReadPolicyFile(const std::string& path) {
  constexpr size_t kLargest = 4u << 20;
  // O_NONBLOCK: a FIFO in place of a file must not hang us.
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (fd.get() < 0) return ErrnoStatus(errno, absl::StrCat("open ", path));
  struct stat st;
  if (fstat(fd.get(), &st) != 0) return ErrnoStatus(errno, absl::StrCat("stat ", path));
  if (!S_ISREG(st.st_mode)) return absl::InvalidArgumentError(absl::StrCat(path, ": not a regular file"));
  std::string text;
  char buffer[1 << 16];
  for (;;) {
    const ssize_t n = read(fd.get(), buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, absl::StrCat("read ", path));
    if (n == 0) return text;
    text.append(buffer, n);
    if (text.size() > kLargest) return absl::InvalidArgumentError(absl::StrCat(path, ": larger than 4 MiB"));
  }
}

}  // namespace agentmon::policy
