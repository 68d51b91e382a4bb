// Tells bpf/unix.bpf.c which calls on unix sockets were judged, and what their names mean.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "bpf/event_abi.h"
#include "common/base/unique_fd.h"

struct unix_bpf;

namespace agentmon {

// Any thread. Keeps the maps of programs that are loaded by itself.
class UnixPermits {
 public:
  static absl::StatusOr<std::shared_ptr<UnixPermits>> Create(const unix_bpf& bpf);

  // From now on the calls of this session need permits, also when there is no daemon.
  absl::Status Add(uint64_t cgroup_id);
  void Remove(uint64_t cgroup_id);

  // For the next call of a thread that waits for its answer. False: there is no room for it.
  bool Put(pid_t tid, const am_unix_permit& permit);
  void Forget(pid_t tid);

 private:
  UnixPermits() = default;
  UniqueFd judged_, permits_;
};

}  // namespace agentmon
