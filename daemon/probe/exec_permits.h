// What was judged of an exec before the kernel opens its file: OPEN_EXEC_PERM names the file that is really
// started, but knows nothing of arguments.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"

namespace agentmon {

struct ExecPermit {
  pid_t tgid = 0;
  std::string asked;  // as the program named it, absolute
  std::vector<std::string> argv;
};

// Any thread. One permit a thread of an agent: its exec is in the kernel and it can begin no other.
class ExecPermits {
 public:
  void Put(pid_t tid, ExecPermit permit);
  struct Use {
    std::shared_ptr<const ExecPermit> permit;  // null: none was given
    bool first = true;                         // the program itself; later ones are interpreters and loaders
  };
  Use Take(pid_t tid);

 private:
  struct Entry {
    std::shared_ptr<const ExecPermit> permit;
    bool used = false;
  };
  void ForgetTheDead() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  absl::Mutex mutex_;
  absl::flat_hash_map<pid_t, Entry> entries_ ABSL_GUARDED_BY(mutex_);
  size_t forget_at_ ABSL_GUARDED_BY(mutex_) = 4096;
};

}  // namespace agentmon
