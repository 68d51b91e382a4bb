// ProcessProbe's work on whole trees: collecting, watching, listing.
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "bpf/event_abi.h"
#include "bpf/process.skel.h"
#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/kernel/proc_fs.h"
#include "daemon/probe/process_probe.h"
#include "daemon/probe/tree_closure.h"

namespace agentmon {
namespace {

constexpr absl::Duration kCollectLimit = absl::Seconds(2);

ProcessKey ToKey(const am_key& key) { return {static_cast<pid_t>(key.pid), key.start_ns}; }

uint64_t BootNs() { return static_cast<uint64_t>(SystemClock().BootNs()); }

}  // namespace

absl::Status ProcessProbe::CheckRoot(pid_t root, const std::vector<am_task>& tasks, ProcessKey* key) const {
  for (const am_task& task : tasks) {
    if (task.key.pid != static_cast<am_u32>(root)) continue;
    if (task.kernel_thread != 0)
      return absl::FailedPreconditionError(absl::StrCat(root, " is a kernel thread"));
    if (task.alive == 0) return absl::NotFoundError(absl::StrCat("process ", root, " has ended"));
    *key = ToKey(task.key);
    return absl::OkStatus();
  }
  return absl::NotFoundError(absl::StrCat("no process ", root));
}

// Takes the edges out of the kernel's map. Who was born since `since_ns` was first entered by the
// fork hook, with the parent that made it.
absl::Status ProcessProbe::ReadEdges(TreeClosure* closure, uint64_t since_ns) {
  static constexpr uint32_t kBatch = 4096;
  std::vector<am_key> children(kBatch), parents(kBatch);
  const int fd = bpf_map__fd(bpf_->maps.edges);
  uint32_t position = 0;
  bool more = true, first = true;
  while (more) {
    uint32_t count = kBatch;
    const int error = bpf_map_lookup_and_delete_batch(fd, first ? nullptr : &position, &position,
                                                      children.data(), parents.data(), &count, nullptr);
    if (error != 0 && errno != ENOENT) return ErrnoStatus(errno, "read the edges of processes");
    more = error == 0;
    first = false;
    for (uint32_t i = 0; closure != nullptr && i < count; ++i) {
      const ProcessKey child = ToKey(children[i]), parent = ToKey(parents[i]);
      child.start_ns > since_ns ? closure->AddBirth(child, parent) : closure->AddEdge(child, parent);
    }
  }
  return absl::OkStatus();
}

absl::Status ProcessProbe::CollectPasses(TreeClosure& closure,
                                         const std::function<absl::Status(pid_t)>& move_one) {
  const uint64_t since_ns = BootNs();
  const absl::Time deadline = absl::Now() + kCollectLimit;
  while (absl::Now() < deadline) {
    ASSIGN_OR_RETURN(const std::vector<am_task> tasks, tasks_->List());
    closure.AddSnapshot(tasks);
    RETURN_IF_ERROR(ReadEdges(&closure, since_ns));
    if (bpf_->bss->edges_lost != 0)
      return absl::ResourceExhaustedError("too many forks on this host at once");
    const std::vector<ProcessKey> to_move = closure.ToMove();
    for (const ProcessKey& key : to_move) {
      if (key.pid == getpid()) return absl::FailedPreconditionError("the tree contains the daemon");
      const absl::Status moved = move_one(key.pid);
      if (!moved.ok() && !absl::IsNotFound(moved))
        return WithContext(moved, absl::StrCat("process ", key.pid));
      closure.SetMoved(key, BootNs());
    }
    if (to_move.empty() && !closure.Unsettled()) return absl::OkStatus();
  }
  return absl::DeadlineExceededError("the tree forks faster than it can be taken in");
}

absl::StatusOr<std::vector<ProcessKey>> ProcessProbe::CollectTree(
    pid_t root, const std::function<absl::Status(pid_t)>& move_one) {
  if (root <= 1) return absl::InvalidArgumentError(absl::StrCat("process ", root, " cannot be taken in"));
  // The snapshot before the hooks record shows the parents of those who are orphaned right then.
  ASSIGN_OR_RETURN(const std::vector<am_task> before, tasks_->List());
  ProcessKey key;
  RETURN_IF_ERROR(CheckRoot(root, before, &key));
  TreeClosure closure(key);
  closure.AddSnapshot(before);
  bpf_->bss->edges_lost = 0;
  bpf_->bss->collecting = 1;
  const absl::Status collected = CollectPasses(closure, move_one);
  bpf_->bss->collecting = 0;
  // Later calls must not take these for their own; what a hook adds after this is older than their start.
  (void)ReadEdges(nullptr, 0);
  if (!collected.ok()) return WithContext(collected, absl::StrCat("take in the tree of ", root));
  return closure.Alive();
}

absl::StatusOr<std::vector<ProcessKey>> ProcessProbe::Watch(pid_t root, uint32_t number) {
  const int fd = bpf_map__fd(bpf_->maps.watched);
  __atomic_fetch_add(&bpf_->bss->watch_count, 1, __ATOMIC_SEQ_CST);
  auto members = CollectTree(root, [&](pid_t pid) {
    const uint32_t tgid = static_cast<uint32_t>(pid);
    if (bpf_map_update_elem(fd, &tgid, &number, BPF_ANY) == 0) return absl::OkStatus();
    return ErrnoStatus(errno, "watch");
  });
  if (!members.ok()) Unwatch(number);
  return members;
}

std::vector<uint32_t> ProcessProbe::WatchedPids(uint32_t number) const {
  const int fd = bpf_map__fd(bpf_->maps.watched);
  std::vector<uint32_t> pids;
  uint32_t key = 0, next = 0, value = 0;
  for (bool first = true; bpf_map_get_next_key(fd, first ? nullptr : &key, &next) == 0; first = false) {
    key = next;
    if (bpf_map_lookup_elem(fd, &key, &value) == 0 && value == number) pids.push_back(key);
  }
  return pids;
}

uint32_t ProcessProbe::WatchOf(uint32_t pid) const {
  uint32_t number = 0;
  if (__atomic_load_n(&bpf_->bss->watch_count, __ATOMIC_SEQ_CST) == 0) return 0;
  return bpf_map_lookup_elem(bpf_map__fd(bpf_->maps.watched), &pid, &number) == 0 ? number : 0;
}

void ProcessProbe::Unwatch(uint32_t number) {
  // Whoever forks meanwhile hands the number on: until nobody is left.
  for (std::vector<uint32_t> pids = WatchedPids(number); !pids.empty(); pids = WatchedPids(number)) {
    for (uint32_t pid : pids) bpf_map_delete_elem(bpf_map__fd(bpf_->maps.watched), &pid);
  }
  if (__atomic_load_n(&bpf_->bss->watch_count, __ATOMIC_SEQ_CST) > 0) {
    __atomic_fetch_sub(&bpf_->bss->watch_count, 1, __ATOMIC_SEQ_CST);
  }
}

bool ProcessProbe::Watches(uint32_t number) const { return !WatchedPids(number).empty(); }

absl::StatusOr<std::vector<SeedProcess>> ProcessProbe::ListSessionProcesses() const {
  ASSIGN_OR_RETURN(const std::vector<am_task> tasks, tasks_->List());
  const ProcFs proc;
  std::vector<SeedProcess> seeds;
  for (const am_task& task : tasks) {
    // As its records say it: who is watched is told by its pid, wherever it is.
    const uint32_t watch = WatchOf(task.key.pid);
    const uint64_t owner = watch != 0 ? AM_WATCHED | watch : task.cgroup_id;
    if (task.alive == 0 || owner == 0 || (watch == 0 && !ring_.HasSession(owner))) continue;
    SeedProcess seed{ToKey(task.key), ToKey(task.parent), owner, task.uid, ""};
    if (auto exe = proc.Executable(seed.key.pid); exe.ok()) seed.exe = *std::move(exe);
    seeds.push_back(std::move(seed));
  }
  return seeds;
}

}  // namespace agentmon
