#include "daemon/probe/caller.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/strip.h"
#include "common/kernel/proc_fs.h"

namespace agentmon {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kFirstRead = 256;  // most names are shorter
constexpr size_t kIdentitiesMax = 4096;

ssize_t ReadMemory(pid_t tid, uint64_t address, void* into, size_t size) {
  const iovec local{into, size};
  const iovec remote{reinterpret_cast<void*>(address), size};
  return process_vm_readv(tid, &local, 1, &remote, 1, 0);
}

}  // namespace

ReadResult ReadCallerString(pid_t tid, uint64_t address, std::string* out) {
  char buffer[PATH_MAX];
  size_t have = 0;
  size_t want = kFirstRead;
  while (have < sizeof(buffer)) {
    // Never across a page in one piece: what follows the string may not be mapped.
    const size_t to_page_end = kPage - (address + have) % kPage;
    const size_t size = std::min({want, to_page_end, sizeof(buffer) - have});
    const ssize_t n = ReadMemory(tid, address + have, buffer + have, size);
    if (n <= 0) return ReadResult::kFault;
    if (const void* end = memchr(buffer + have, '\0', static_cast<size_t>(n)); end != nullptr) {
      out->assign(buffer, static_cast<size_t>(static_cast<const char*>(end) - buffer));
      return ReadResult::kOk;
    }
    have += static_cast<size_t>(n);
    want = kPage;
  }
  out->assign(buffer, have);
  return ReadResult::kCut;
}

bool ReadCallerBytes(pid_t tid, uint64_t address, void* into, size_t size) {
  return ReadMemory(tid, address, into, size) == static_cast<ssize_t>(size);
}

std::string CallerFdPath(pid_t tid, int fd) {
  char link[64];
  if (fd == AT_FDCWD) {
    snprintf(link, sizeof(link), "/proc/%d/cwd", tid);
  } else {
    snprintf(link, sizeof(link), "/proc/%d/fd/%d", tid, fd);
  }
  char target[PATH_MAX];
  const ssize_t n = readlink(link, target, sizeof(target));
  if (n <= 0) return "";
  return std::string(absl::StripSuffix(absl::string_view(target, static_cast<size_t>(n)), " (deleted)"));
}

CallerIdentity CallerIdentities::Find(pid_t tid) {
  const auto found = known_.find(tid);
  if (found != known_.end() && syscall(SYS_tgkill, found->second.tgid, tid, 0) == 0) return found->second;
  CallerIdentity identity{tid, 0};
  if (syscall(SYS_tgkill, tid, tid, 0) != 0) {
    // Not the leader of its group, or gone. ESRCH says both.
    const auto tgid = ProcFs().ThreadGroup(tid);
    if (!tgid.ok()) return found != known_.end() ? found->second : identity;
    identity.tgid = *tgid;
  }
  char directory[32];
  snprintf(directory, sizeof(directory), "/proc/%d", identity.tgid);
  struct stat st {};
  if (stat(directory, &st) == 0) identity.uid = st.st_uid;
  if (known_.size() >= kIdentitiesMax) known_.clear();
  known_[tid] = identity;
  return identity;
}

}  // namespace agentmon
