// A fixed number of threads for work that may wait (a cgroup migration takes 10 to 15 ms).
#pragma once

#include <thread>
#include <vector>

#include "common/base/bounded_queue.h"
#include "common/base/task_runner.h"

namespace agentmon {

class WorkerPool {
 public:
  WorkerPool(int threads, size_t capacity);
  // Runs what was accepted, then joins.
  ~WorkerPool();
  // False when too much waits already. Any thread.
  [[nodiscard]] bool TryPost(Task task) { return queue_.TryPush(std::move(task)); }

 private:
  BoundedQueue<Task> queue_;
  std::vector<std::thread> threads_;
};

}  // namespace agentmon
