// Read-only connections for queries. Thread-safe; a connection belongs to one thread while it is leased.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "daemon/store/sqlite.h"
#include "daemon/store/state_dir.h"

namespace agentmon {

class ReaderPool {
 public:
  class Lease {
   public:
    Lease(Lease&& other) = default;
    ~Lease() {
      if (database_ != nullptr) pool_->Return(std::move(database_), generation_);
    }
    Database& operator*() { return *database_; }
    Database* operator->() { return database_.get(); }

   private:
    friend class ReaderPool;
    Lease(ReaderPool* pool, std::unique_ptr<Database> database, uint64_t generation)
        : pool_(pool), database_(std::move(database)), generation_(generation) {}
    ReaderPool* pool_;
    std::unique_ptr<Database> database_;
    uint64_t generation_;
  };

  explicit ReaderPool(const StateDir& dir) : dir_(dir) {}

  absl::StatusOr<Lease> Get();
  // The file at the path is another one now. Leases that are out go on reading the old one.
  void OnFileChanged();
  // Closes what nobody uses.
  void Shrink();

 private:
  static constexpr size_t kMostIdle = 4;

  void Return(std::unique_ptr<Database> database, uint64_t generation);

  const StateDir& dir_;
  absl::Mutex mutex_;
  std::vector<std::unique_ptr<Database>> idle_ ABSL_GUARDED_BY(mutex_);
  uint64_t generation_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace agentmon
