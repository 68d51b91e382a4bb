#include "daemon/store/reader_pool.h"

#include "common/base/status.h"
#include "daemon/store/schema.h"

namespace agentmon {

absl::StatusOr<ReaderPool::Lease> ReaderPool::Get() {
  uint64_t generation;
  {
    absl::MutexLock lock(&mutex_);
    generation = generation_;
    if (!idle_.empty()) {
      std::unique_ptr<Database> database = std::move(idle_.back());
      idle_.pop_back();
      return Lease(this, std::move(database), generation);
    }
  }
  ASSIGN_OR_RETURN(Database database, OpenForReading(dir_, absl::Seconds(1)));
  return Lease(this, std::make_unique<Database>(std::move(database)), generation);
}

void ReaderPool::Return(std::unique_ptr<Database> database, uint64_t generation) {
  absl::MutexLock lock(&mutex_);
  if (generation == generation_ && idle_.size() < kMostIdle) idle_.push_back(std::move(database));
}

void ReaderPool::OnFileChanged() {
  absl::MutexLock lock(&mutex_);
  ++generation_;
  idle_.clear();
}

void ReaderPool::Shrink() {
  absl::MutexLock lock(&mutex_);
  idle_.clear();
}

}  // namespace agentmon
