#include "common/base/worker_pool.h"

#include <pthread.h>

namespace agentmon {

WorkerPool::WorkerPool(int threads, size_t capacity) : queue_(capacity) {
  for (int i = 0; i < threads; ++i) {
    threads_.emplace_back([this] {
      pthread_setname_np(pthread_self(), "worker");
      while (std::optional<Task> task = queue_.Pop()) (*task)();
    });
  }
}

WorkerPool::~WorkerPool() {
  queue_.Close();
  for (std::thread& thread : threads_) thread.join();
}

}  // namespace agentmon
