// The process that waits in a system call, looked at from outside. Short functions on a thread id, which must
// be the thread of a request that is still unanswered where exactness matters.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/container/flat_hash_map.h"

namespace agentmon {

enum class ReadResult { kOk, kCut, kFault };

// The NUL-terminated string at `address`, at most PATH_MAX bytes (kCut when there is no NUL within).
ReadResult ReadCallerString(pid_t tid, uint64_t address, std::string* out);
bool ReadCallerBytes(pid_t tid, uint64_t address, void* into, size_t size);

// Path of the directory fd, of the current directory (AT_FDCWD), or of any open file; as the kernel names it
// in the caller's mount namespace, without a trailing " (deleted)". Empty when it cannot be read.
std::string CallerFdPath(pid_t tid, int fd);

struct CallerIdentity {
  pid_t tgid = 0;
  uid_t uid = 0;
};

// Thread -> process. One thread's own; not thread-safe. Every answer is checked anew with a signal 0, which
// costs less than reading /proc: a number that came to mean another process is noticed.
class CallerIdentities {
 public:
  CallerIdentity Find(pid_t tid);

 private:
  absl::flat_hash_map<pid_t, CallerIdentity> known_;
};

}  // namespace agentmon
