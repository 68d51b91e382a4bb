// Who a pid is: birth, parent at birth, executable, user, session. Fed by fork, exec and exit events
// and by seeds; asked for every event.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "common/kernel/proc_fs.h"
#include "daemon/event/decode.h"
#include "daemon/event/process_key.h"
#include "daemon/event/seed_process.h"

namespace agentmon {

// Core thread. Memory is bounded; a process that is not known is looked up in /proc once.
class ProcessTree {
 public:
  struct Options {
    size_t max_live = 131'072;  // beyond it new processes are not remembered
    size_t max_exited = 8'192;  // for records that come after the end of their process
    absl::Duration keep_exited = absl::Seconds(30);
  };
  struct Node {
    ProcessKey key;
    ProcessKey parent;  // at birth; pid 0 = not known
    std::string exe;
    uint32_t uid = 0;
    uint64_t cgroup_id = 0;
    int64_t exited_ns = 0;   // 0 = as far as is known it runs
    std::string exe_before;  // until exec_ns, when its last exec is known
    int64_t exec_ns = 0;
  };

  ProcessTree() : ProcessTree(ProcFs(), Options()) {}
  ProcessTree(ProcFs proc, Options options) : proc_(std::move(proc)), options_(options) {}

  // A process that was there before its records. What records have told already stays.
  void Seed(const SeedProcess& seed);
  // Fork, exec and exit change the tree; other events do not.
  void Learn(const Decoded& decoded);
  // Completes the event: process.pid from `tid` where only that is known, birth, parent at birth,
  // executable; the user where neither birth nor user was told. Call after Learn of the same event.
  // What fanotify tells has the time of its reading: it is set back to the process's end when that is known.
  void Stamp(Event* event, uint32_t tid);
  // Drops what is left of a session after its end (exits whose records were lost).
  void ForgetSession(uint64_t cgroup_id);

  // The process that had this pid at that time; null when not known. start_ns 0 = whichever.
  const Node* Find(pid_t pid, uint64_t start_ns, int64_t at_boot_ns) const;
  size_t live() const { return live_.size(); }
  size_t exited() const { return exited_order_.size(); }

 private:
  void OnFork(const Decoded& decoded);
  void OnExec(const Decoded& decoded);
  void OnExit(const Decoded& decoded);
  Node* Know(const Event& event, uint64_t cgroup_id);
  Node* Insert(Node node, int64_t now_ns);
  void Retire(pid_t pid, int64_t now_ns);
  void Prune(int64_t now_ns);
  pid_t ProcessOf(uint32_t tid, int64_t at_boot_ns);
  bool HasThread(pid_t process, pid_t tid) const;
  const Node* LookUp(pid_t pid);
  static void NotAfterItsEnd(const Node& node, Event* event);

  const ProcFs proc_;
  const Options options_;
  absl::flat_hash_map<pid_t, Node> live_;
  absl::flat_hash_map<pid_t, std::vector<Node>> exited_;  // oldest first
  std::deque<std::pair<ProcessKey, int64_t>> exited_order_;
  absl::flat_hash_map<pid_t, pid_t> threads_;  // thread -> process, checked at each use
};

}  // namespace agentmon
