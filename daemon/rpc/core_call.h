// Runs something on the core thread for a gRPC thread and waits for its answer.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "common/base/task_runner.h"

namespace agentmon {

template <typename T>
using CoreDone = std::function<void(absl::StatusOr<T>)>;

// start(done) runs on the core thread and calls done once, then or later.
template <typename T>
absl::StatusOr<T> CallCoreAsync(TaskRunner& core, absl::Duration timeout,
                                std::function<void(CoreDone<T>)> start) {
  struct Shared {
    absl::Notification ready;
    absl::StatusOr<T> answer = absl::UnavailableError("agentmond is stopping");
  };
  auto shared = std::make_shared<Shared>();
  core.Post([shared, start = std::move(start)] {
    start([shared](absl::StatusOr<T> answer) {
      shared->answer = std::move(answer);
      shared->ready.Notify();
    });
  });
  if (!shared->ready.WaitForNotificationWithTimeout(timeout)) {
    return absl::DeadlineExceededError("agentmond did not answer in time");
  }
  return shared->answer;
}

template <typename T>
absl::StatusOr<T> CallCore(TaskRunner& core, std::function<absl::StatusOr<T>()> call) {
  return CallCoreAsync<T>(core, absl::Seconds(20),
                          [call = std::move(call)](CoreDone<T> done) { done(call()); });
}

}  // namespace agentmon
