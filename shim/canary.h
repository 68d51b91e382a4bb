// Tries the forbidden acts of a plan, from inside of everything that the shim has done to itself.
#pragma once

#include <sys/types.h>

#include <vector>

#include "absl/status/statusor.h"
#include "agentmon/v1/sessions.pb.h"
#include "common/base/unique_fd.h"

namespace agentmon {

// A process of the same user outside of the session's domain, whom a signal may reach as long as nothing but
// the domain forbids it: the agentmon that waits for us, else a child made for this. Made before the domain
// is entered.
class Outsider {
 public:
  static absl::StatusOr<Outsider> Find();
  ~Outsider();  // ends the child that was made
  Outsider(Outsider&&) = default;
  Outsider& operator=(Outsider&&) = delete;

  pid_t pid() const { return pid_; }

 private:
  explicit Outsider(pid_t pid, UniqueFd life = {}) : pid_(pid), life_(std::move(life)) {}
  pid_t pid_;
  UniqueFd life_;  // of a child that was made: it ends when this is closed
};

// The errno that the act failed with, 0 when it succeeded. Harmless when it does. May block as long as the
// daemon does not answer: the caller bounds it. `outsider`: for signals to pid 0.
int TryCanary(const v1::Canary& canary, pid_t outsider);

}  // namespace agentmon
