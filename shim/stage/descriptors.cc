#include "shim/stage/descriptors.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <memory>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/status.h"

namespace agentmon {
namespace {

constexpr unsigned kMemoryMajor = 1;
constexpr unsigned kSafeMemoryDevices[] = {3, 5, 7, 8, 9};  // null, zero, full, random, urandom
constexpr unsigned kTerminalMajor = 5;                      // minor 0: /dev/tty
constexpr unsigned kMultiplexer = 2;                        // /dev/ptmx
constexpr long kNamespaceFiles = 0x6e736673;                // NSFS_MAGIC

// The terminal that the session is on, under whatever number: not its other end, which types into it.
bool OwnTerminal(int fd, dev_t device) {
  const bool other_end = major(device) == kTerminalMajor && minor(device) == kMultiplexer;
  if (other_end || isatty(fd) != 1) return false;
  if (tcgetsid(fd) == getsid(0)) return true;
  for (int standard = STDIN_FILENO; standard <= STDERR_FILENO; ++standard) {
    struct stat st {};
    if (isatty(standard) == 1 && fstat(standard, &st) == 0 && st.st_rdev == device) return true;
  }
  return false;
}

bool SafeDevice(int fd, dev_t device) {
  if (major(device) == kTerminalMajor && minor(device) == 0) return true;
  if (major(device) != kMemoryMajor) return OwnTerminal(fd, device);
  return std::find(std::begin(kSafeMemoryDevices), std::end(kSafeMemoryDevices), minor(device)) !=
         std::end(kSafeMemoryDevices);
}

// Things without a name that only count or wait. pidfds, rings, BPF objects and the like lead out.
bool SafeAnonymous(int fd) {
  char name[PATH_MAX];
  const ssize_t size = readlink(absl::StrCat("/proc/self/fd/", fd).c_str(), name, sizeof(name));
  const absl::string_view text(name, size < 0 ? 0 : static_cast<size_t>(size));
  return text == "anon_inode:[eventfd]" || text == "anon_inode:[eventpoll]" ||
         text == "anon_inode:[timerfd]" || text == "anon_inode:[signalfd]" || text == "anon_inode:inotify";
}

bool LeadsOut(int fd, const struct stat& st, int flags) {
  if ((flags & O_PATH) != 0) return true;
  switch (st.st_mode & S_IFMT) {
    case S_IFIFO:
      return false;
    case S_IFREG: {
      struct statfs fs {};
      return fstatfs(fd, &fs) == 0 && fs.f_type == kNamespaceFiles;
    }
    case S_IFCHR:
      return !SafeDevice(fd, st.st_rdev);
    case 0:
      return !SafeAnonymous(fd);
    default:
      return true;
  }
}

absl::Status CheckStandard(int fd, const struct stat& st, int flags) {
  if (!S_ISDIR(st.st_mode) && (flags & O_PATH) == 0) return absl::OkStatus();
  constexpr absl::string_view kNames[] = {"standard input", "standard output", "standard error"};
  return absl::FailedPreconditionError(
      absl::StrCat(kNames[fd], S_ISDIR(st.st_mode) ? " is a directory" : " is an O_PATH descriptor",
                   ", which leads past the policy of the session: redirect it elsewhere"));
}

absl::Status Inspect(int fd, const std::vector<int>& keep) {
  const int inherits = fcntl(fd, F_GETFD);
  if (inherits < 0 || (inherits & FD_CLOEXEC) != 0) return absl::OkStatus();
  if (std::find(keep.begin(), keep.end(), fd) != keep.end()) return absl::OkStatus();
  struct stat st {};
  const int flags = fcntl(fd, F_GETFL);
  if (flags < 0 || fstat(fd, &st) != 0) return ErrnoStatus(errno, absl::StrCat("look at descriptor ", fd));
  if (fd <= STDERR_FILENO) return CheckStandard(fd, st, flags);
  if (LeadsOut(fd, st, flags) && fcntl(fd, F_SETFD, FD_CLOEXEC) != 0)
    return ErrnoStatus(errno, absl::StrCat("close descriptor ", fd));
  return absl::OkStatus();
}

}  // namespace

absl::Status CloseWhatLeadsOut(const std::vector<int>& keep) {
  const std::unique_ptr<DIR, int (*)(DIR*)> list(opendir("/proc/self/fd"), &closedir);
  if (list == nullptr) return ErrnoStatus(errno, "list the descriptors of /proc/self/fd");
  while (const dirent* entry = readdir(list.get())) {
    int fd;
    if (!absl::SimpleAtoi(entry->d_name, &fd)) continue;
    RETURN_IF_ERROR(Inspect(fd, keep));
  }
  return absl::OkStatus();
}

}  // namespace agentmon
