#include "daemon/policy/resolved_path.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/unique_fd.h"

namespace agentmon {

std::string ResolvedPath(absl::string_view path, pid_t pid) {
  absl::string_view rest = path;
  std::string asked(path);
  for (const absl::string_view self : {"/proc/self/", "/proc/thread-self/"}) {
    if (absl::ConsumePrefix(&rest, self)) asked = absl::StrCat("/proc/", pid, "/", rest);
  }
  open_how how{};
  how.flags = O_PATH | O_CLOEXEC;
  how.resolve = RESOLVE_CACHED;
  const UniqueFd fd(static_cast<int>(::syscall(SYS_openat2, AT_FDCWD, asked.c_str(), &how, sizeof how)));
  if (!fd.valid()) return "";
  char target[PATH_MAX];
  const ssize_t n = ::readlink(absl::StrCat("/proc/self/fd/", fd.get()).c_str(), target, sizeof target);
  const absl::string_view real(target, n > 0 ? static_cast<size_t>(n) : 0);
  if (!absl::StartsWith(real, "/") || absl::EndsWith(real, " (deleted)")) return "";
  return std::string(real);
}

}  // namespace agentmon
