#include "common/policy/current.h"

#include <utility>

namespace agentmon::policy {

std::shared_ptr<const Snapshot> CurrentSnapshot::Get() const {
  const absl::ReaderMutexLock lock(&mutex_);
  return snapshot_;
}

std::shared_ptr<const Snapshot> CurrentSnapshot::Switch(std::shared_ptr<const Snapshot> snapshot) {
  const absl::MutexLock lock(&mutex_);
  std::swap(snapshot_, snapshot);
  return snapshot;
}

}  // namespace agentmon::policy
