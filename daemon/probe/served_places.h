// Which mounts of a session lie behind a server, for who must not walk into one.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <set>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "daemon/enforce/caller_lookup.h"

namespace agentmon {

// Thread-safe.
class ServedPlaces {
 public:
  // By the numbers of mountinfo.
  void Set(uint64_t cgroup_id, std::set<uint64_t> mounts);
  void Forget(uint64_t cgroup_id);
  // Whether the way to that name leads into one of them. Asks no server; links are followed, and what changes
  // meanwhile is not seen.
  bool Meets(uint64_t cgroup_id, pid_t tid, pid_t tgid, const CallerName& name) const;

 private:
  mutable absl::Mutex mutex_;
  absl::flat_hash_map<uint64_t, std::set<uint64_t>> mounts_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace agentmon
