// ^C as the clean end of a stream: cancels a call in place of ending the process.
#pragma once

#include <grpcpp/client_context.h>
#include <signal.h>

#include <atomic>
#include <thread>

#include "absl/time/time.h"
#include "common/base/unique_fd.h"

namespace agentmon {

// From its making on SIGINT is taken by this object; make it before gRPC makes threads, which inherit its
// mask.
class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  // Cancels the context on SIGINT, and when `after` has passed. The context must live until Stop.
  void Cancels(grpc::ClientContext* context, absl::Duration after = absl::InfiniteDuration());
  void Stop();
  bool happened() const { return happened_; }

 private:
  void Watch(grpc::ClientContext* context, absl::Duration after);

  sigset_t old_mask_;
  UniqueFd signals_;
  UniqueFd end_;
  std::thread thread_;
  std::atomic<bool> happened_{false};
};

}  // namespace agentmon
