#include "daemon/probe/caller_socket.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "common/kernel/pid_fd.h"

namespace agentmon {
namespace {

constexpr unsigned kPidFdThread = O_EXCL;  // PIDFD_THREAD of Linux 6.9

// Of the thread where the kernel can, else of its process.
UniqueFd OpenHolder(pid_t tid, pid_t tgid) {
  UniqueFd thread(static_cast<int>(syscall(SYS_pidfd_open, tid, tid == tgid ? 0u : kPidFdThread)));
  if (thread.valid() || errno != EINVAL) return thread;
  return UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, tgid, 0)));
}

// A thread may have unshared its table from that of its process.
bool IsSame(pid_t tid, int number, int taken) {
  struct stat theirs {
  }, ours{};
  return stat(absl::StrCat("/proc/", tid, "/fd/", number).c_str(), &theirs) == 0 &&
         fstat(taken, &ours) == 0 && theirs.st_dev == ours.st_dev && theirs.st_ino == ours.st_ino;
}

int Option(int fd, int option) {
  int value = -1;
  socklen_t size = sizeof(value);
  return getsockopt(fd, SOL_SOCKET, option, &value, &size) == 0 ? value : -1;
}

}  // namespace

bool CallerSocket::inet() const { return domain == AF_INET || domain == AF_INET6; }
bool CallerSocket::stream() const { return type == SOCK_STREAM || type == SOCK_SEQPACKET; }
bool CallerSocket::blocking() const { return (fcntl(fd.get(), F_GETFL) & O_NONBLOCK) == 0; }

uint64_t CallerSocket::cookie() const {
  uint64_t cookie = 0;
  socklen_t size = sizeof(cookie);
  return getsockopt(fd.get(), SOL_SOCKET, SO_COOKIE, &cookie, &size) == 0 ? cookie : 0;
}

CallerSocket TakeSocket(pid_t tid, pid_t tgid, int number) {
  CallerSocket out;
  const UniqueFd holder = OpenHolder(tid, tgid);
  out.error = EPERM;
  if (!holder.valid()) return out;
  UniqueFd taken(static_cast<int>(syscall(SYS_pidfd_getfd, holder.get(), number, 0)));
  if (!taken.valid()) {
    if (errno == EBADF) out.error = EBADF;
    return out;
  }
  if (tid != tgid && !IsSame(tid, number, taken.get())) return out;
  out.error = 0;
  out.domain = Option(taken.get(), SO_DOMAIN);
  out.type = Option(taken.get(), SO_TYPE);
  out.protocol = Option(taken.get(), SO_PROTOCOL);
  out.fd = std::move(taken);
  return out;
}

bool OwnsItsTable(pid_t tgid) {
  constexpr nlink_t kOneThread = 3;  // ".", "..", and one directory for each thread
  struct stat st {};
  return stat(absl::StrCat("/proc/", tgid, "/task").c_str(), &st) == 0 && st.st_nlink == kOneThread;
}

}  // namespace agentmon
