// One thread's loop over descriptors, timers and posted tasks.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/task_runner.h"
#include "common/base/unique_fd.h"

namespace agentmon {

// Beside TaskRunner because a resolver waits for room to write, and takes timers back. Everything but Post
// and Quit: the loop's own thread, or before Run. Sleeps without a timeout while no timer is set.
class PollLoop {
 public:
  using OnReady = std::function<void(uint32_t epoll_events)>;
  using Timer = std::pair<absl::Time, uint64_t>;

  static absl::StatusOr<std::unique_ptr<PollLoop>> Create();

  // Any thread. Runs after what the loop does now, in the order of the calls; dropped once the loop has
  // ended.
  void Post(Task task);
  void Quit();

  // Level-triggered. A second call for the same fd replaces the first. The fd stays the caller's.
  absl::Status Watch(int fd, uint32_t epoll_events, OnReady on_ready);
  void Unwatch(int fd);
  Timer After(absl::Duration delay, Task task);
  void Cancel(const Timer& timer) { timers_.erase(timer); }

  void Run();

 private:
  PollLoop(UniqueFd epoll, UniqueFd wake) : epoll_(std::move(epoll)), wake_(std::move(wake)) {}
  void RunPosted();
  void RunTimers();
  int TimeoutMs() const;

  const UniqueFd epoll_, wake_;
  // Handlers by a number of their own: what waits for a closed descriptor does not reach its successor.
  absl::flat_hash_map<uint64_t, std::shared_ptr<OnReady>> handlers_;
  absl::flat_hash_map<int, uint64_t> handler_of_;
  std::map<Timer, Task> timers_;
  uint64_t next_number_ = 1;
  absl::Mutex mutex_;
  std::vector<Task> posted_ ABSL_GUARDED_BY(mutex_);
  bool quit_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace agentmon
