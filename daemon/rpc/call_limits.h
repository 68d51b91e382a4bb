// How many requests and streams of one uid may be open at once.
#pragma once

#include <sys/types.h>

#include <map>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/base/refusal.h"

namespace agentmon {

// Thread-safe.
class CallLimits {
 public:
  explicit CallLimits(int per_uid) : per_uid_(per_uid) {}

  // Counts down when destroyed.
  class Slot {
   public:
    Slot(CallLimits* owner, uid_t uid) : owner_(owner), uid_(uid) {}
    Slot(Slot&& other) noexcept : owner_(other.owner_), uid_(other.uid_) { other.owner_ = nullptr; }
    Slot& operator=(Slot&&) = delete;
    ~Slot() {
      if (owner_ != nullptr) owner_->Release(uid_);
    }

   private:
    CallLimits* owner_;
    uid_t uid_;
  };

  absl::StatusOr<Slot> Take(uid_t uid, absl::string_view what) {
    absl::MutexLock lock(&mutex_);
    if (open_[uid] >= per_uid_) {
      return Refusal(absl::StatusCode::kResourceExhausted, "TOO_MANY_CALLS",
                     absl::StrCat("uid ", uid, " has ", per_uid_, " ", what, " open, the limit"),
                     "close some, or try again");
    }
    ++open_[uid];
    return Slot(this, uid);
  }

 private:
  void Release(uid_t uid) {
    absl::MutexLock lock(&mutex_);
    if (--open_[uid] == 0) open_.erase(uid);
  }

  const int per_uid_;
  absl::Mutex mutex_;
  std::map<uid_t, int> open_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace agentmon
