// The kernel's table of processes, read by a BPF iterator: with birth times that are exact and the
// cgroup at the session level, in about 1 us a process.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "bpf/event_abi.h"
#include "daemon/probe/bpf_load.h"

struct iterators_bpf;

namespace agentmon {

class KernelTasks {
 public:
  static absl::StatusOr<std::unique_ptr<KernelTasks>> Create(uint32_t session_level);
  ~KernelTasks();

  // Not one moment's picture: in ascending order of pid, each as it was when it was reached.
  absl::StatusOr<std::vector<am_task>> List() const;

 private:
  KernelTasks();

  UniqueSkeleton<iterators_bpf> bpf_;
  UniqueLink link_;
};

}  // namespace agentmon
