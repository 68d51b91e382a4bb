// Forks, execs and exits, from the kernel's own trace points: every one, exact. Also what only these
// hooks can do: take in a running tree without a gap, and watch one without moving it.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "daemon/event/process_key.h"
#include "daemon/event/seed_process.h"
#include "daemon/probe/bpf_load.h"
#include "daemon/probe/bpf_ring.h"
#include "daemon/probe/exec_verifier.h"
#include "daemon/probe/kernel_tasks.h"
#include "daemon/probe/probe.h"

struct process_bpf;

namespace agentmon {

class TreeClosure;

// Core thread; CollectTree and Watch, which block, also from another thread, one of them at a time.
// `ring` outlives it. The calls below need Attach first.
class ProcessProbe : public Probe {
 public:
  // Loads the programs; nothing runs before Attach.
  static absl::StatusOr<std::unique_ptr<ProcessProbe>> Create(BpfRing& ring);
  ~ProcessProbe() override;

  absl::string_view name() const override { return "process"; }
  absl::Status Attach(RecordSink& sink) override;
  ProbeStats Stats() const override;

  // Calls `move_one` for the root and everything that descends from it, until the kernel shows nobody
  // new: also who forks, double-forks or loses its parent meanwhile. `move_one` puts a process where
  // its later children will be born too (a cgroup); NotFound from it means gone, any other error ends
  // the call, with those moved so far left where they are. Answers who was alive at the end.
  // Blocks for some milliseconds, at most 2 s (DeadlineExceeded). Not included: processes that were
  // orphans before the call.
  absl::StatusOr<std::vector<ProcessKey>> CollectTree(pid_t root,
                                                      const std::function<absl::Status(pid_t)>& move_one);

  // Records of the tree come with cgroup_id AM_WATCHED | number, wherever its processes are, those in
  // sessions excepted. Children are included from birth.
  absl::StatusOr<std::vector<ProcessKey>> Watch(pid_t root, uint32_t number);
  void Unwatch(uint32_t number);
  // A process of the watched tree is still running.
  bool Watches(uint32_t number) const;

  // From now on execs of this session need permits of verifier(): see there.
  absl::Status Verify(uint64_t cgroup_id, absl::Duration lenient);
  void Unverify(uint64_t cgroup_id);
  // Null where arguments cannot be verified.
  const std::shared_ptr<ExecVerifier>& verifier() const { return verifier_; }

  // Every process that is in a session of the ring now, or watched.
  absl::StatusOr<std::vector<SeedProcess>> ListSessionProcesses() const;
  // Every process on the host.
  absl::StatusOr<std::vector<am_task>> ListTasks() const { return tasks_->List(); }

 private:
  explicit ProcessProbe(BpfRing& ring);
  absl::Status Load();
  absl::Status CollectPasses(TreeClosure& closure, const std::function<absl::Status(pid_t)>& move_one);
  std::vector<uint32_t> WatchedPids(uint32_t number) const;
  uint32_t WatchOf(uint32_t pid) const;  // the number of the watch that it is in, 0 = none
  absl::Status ReadEdges(TreeClosure* closure, uint64_t since_ns);
  absl::Status CheckRoot(pid_t root, const std::vector<am_task>& tasks, ProcessKey* key) const;

  BpfRing& ring_;
  UniqueSkeleton<process_bpf> bpf_;
  std::unique_ptr<KernelTasks> tasks_;
  std::shared_ptr<ExecVerifier> verifier_;
};

}  // namespace agentmon
