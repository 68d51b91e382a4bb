// A queue between threads with a fixed capacity. A full queue refuses; the producer counts.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace agentmon {

template <typename T>
class BoundedQueue {
 public:
  explicit BoundedQueue(size_t capacity) : capacity_(capacity) {}

  // False when the queue is full or closed; never blocks for longer than the lock.
  [[nodiscard]] bool TryPush(T item) {
    absl::MutexLock lock(&mutex_);
    if (closed_ || items_.size() >= capacity_) return false;
    items_.push_back(std::move(item));
    return true;
  }

  // Moves everything that waits into *out (appending). Waits up to `timeout` for a first item.
  // False once the queue is closed and empty.
  bool PopAll(std::vector<T>* out, absl::Duration timeout) {
    absl::MutexLock lock(&mutex_);
    mutex_.AwaitWithTimeout(absl::Condition(this, &BoundedQueue::Ready), timeout);
    while (!items_.empty()) {
      out->push_back(std::move(items_.front()));
      items_.pop_front();
    }
    return !(closed_ && out->empty());
  }

  // The next item; waits for one. Nothing once the queue is closed and empty.
  std::optional<T> Pop() {
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(this, &BoundedQueue::Ready));
    if (items_.empty()) return std::nullopt;
    std::optional<T> item(std::move(items_.front()));
    items_.pop_front();
    return item;
  }

  // No more pushes; a waiting PopAll returns.
  void Close() {
    absl::MutexLock lock(&mutex_);
    closed_ = true;
  }

  size_t size() const {
    absl::MutexLock lock(&mutex_);
    return items_.size();
  }

 private:
  bool Ready() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return closed_ || !items_.empty(); }

  const size_t capacity_;
  mutable absl::Mutex mutex_;
  std::deque<T> items_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace agentmon
