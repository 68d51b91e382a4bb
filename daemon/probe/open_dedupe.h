// Remembers for a second which process opened what for writing, and how often. fanotify's open event does not
// tell reading from writing; the notify source does, so the open event of an open that it has recorded says
// nothing new.
#pragma once

#include <sys/types.h>

#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"

namespace agentmon {

// Thread-safe; bounded. Names that the two sources see differently (through a symbolic link as last
// component) are not recognized, which costs a row and loses nothing.
class OpenDedupe {
 public:
  static constexpr int64_t kRemembered_ns = 1'000'000'000;  // at least; at most twice as long
  static constexpr size_t kMax = 1 << 16;                   // per kRemembered_ns; more is not remembered

  void OpenedForWriting(uint64_t cgroup_id, pid_t tgid, absl::string_view path, int64_t now_ns);
  // True for as many open events as were told: the next one is a read.
  bool TakeOpenedForWriting(uint64_t cgroup_id, pid_t tgid, absl::string_view path, int64_t now_ns);

 private:
  using Counts = absl::flat_hash_map<size_t, uint32_t>;  // by hash

  static bool TakeOne(Counts& counts, size_t key);
  void Age(int64_t now_ns) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  absl::Mutex mutex_;
  int64_t recent_since_ns_ ABSL_GUARDED_BY(mutex_) = 0;
  Counts recent_ ABSL_GUARDED_BY(mutex_);
  Counts previous_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace agentmon
