// The snapshot that is in force now. Readers never wait for a reload and never see half of one.
#pragma once

#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/policy/snapshot.h"

namespace agentmon::policy {

// Any thread. What Get gives stays good after a Switch; the last holder frees it.
class CurrentSnapshot {
 public:
  explicit CurrentSnapshot(std::shared_ptr<const Snapshot> snapshot) : snapshot_(std::move(snapshot)) {}

  std::shared_ptr<const Snapshot> Get() const;
  // Returns what was in force before.
  std::shared_ptr<const Snapshot> Switch(std::shared_ptr<const Snapshot> snapshot);

 private:
  mutable absl::Mutex mutex_;
  std::shared_ptr<const Snapshot> snapshot_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace agentmon::policy
