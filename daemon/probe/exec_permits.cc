#include "daemon/probe/exec_permits.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace agentmon {

void ExecPermits::Put(pid_t tid, ExecPermit permit) {
  absl::MutexLock lock(&mutex_);
  if (entries_.size() >= forget_at_) ForgetTheDead();
  entries_[tid] = {std::make_shared<const ExecPermit>(std::move(permit)), false};
}

ExecPermits::Use ExecPermits::Take(pid_t tid) {
  absl::MutexLock lock(&mutex_);
  const auto found = entries_.find(tid);
  if (found == entries_.end()) return {};
  const bool first = !found->second.used;
  found->second.used = true;
  return {found->second.permit, first};
}

// Never those of threads that are there: an exec of theirs may be under way.
void ExecPermits::ForgetTheDead() {
  for (auto it = entries_.begin(); it != entries_.end();) {
    const bool dead = syscall(SYS_tkill, it->first, 0) != 0 && errno == ESRCH;
    if (dead) {
      entries_.erase(it++);
    } else {
      ++it;
    }
  }
  forget_at_ = std::max<size_t>(4096, entries_.size() * 2);
}

}  // namespace agentmon
