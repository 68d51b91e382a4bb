// Which processes belong to a running tree while it forks, loses parents and is being moved.
//
// What is known comes as edges child -> parent: from snapshots of the task table, which show only the
// present parent, and from the fork and exit hooks, which are on for as long as this takes and so show
// every parent that a process has had meanwhile. A process belongs when a chain of edges leads to the
// root. Not every member has to be moved: who is born after its parent was moved is inside already.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "bpf/event_abi.h"
#include "daemon/event/process_key.h"

namespace agentmon {

class TreeClosure {
 public:
  explicit TreeClosure(ProcessKey root) { Join(root); }

  // `parent` made `child`, told by the fork hook. The first one told counts.
  void AddBirth(ProcessKey child, ProcessKey parent);
  // `parent` is or was the parent of `child`.
  void AddEdge(ProcessKey child, ProcessKey parent);
  // What the table shows now, edges included.
  void AddSnapshot(const std::vector<am_task>& tasks);

  // Members that are alive in the last snapshot and neither moved nor born inside; parents come before
  // the children that they brought in.
  std::vector<ProcessKey> ToMove();
  // True when a member is known by its edges only and no snapshot has been taken since: it may be alive.
  bool Unsettled() const { return unsettled_; }
  // The process is inside from then on, as are children that it makes later.
  void SetMoved(ProcessKey key, uint64_t boot_ns) { moved_ns_[key] = boot_ns; }

  // Members that the last snapshot showed alive.
  std::vector<ProcessKey> Alive() const;

 private:
  struct Waiting {
    ProcessKey key;
    uint64_t since = 0;  // the snapshot that was the last one when it joined
  };

  void Join(ProcessKey key);
  bool BornInside(ProcessKey key) const;

  absl::flat_hash_map<ProcessKey, absl::flat_hash_set<ProcessKey>> children_;
  absl::flat_hash_map<ProcessKey, ProcessKey> birth_;
  absl::flat_hash_map<ProcessKey, uint64_t> moved_ns_;
  absl::flat_hash_set<ProcessKey> members_;
  absl::flat_hash_set<ProcessKey> alive_;
  std::vector<Waiting> waiting_;
  uint64_t snapshots_ = 0;
  bool unsettled_ = false;
};

}  // namespace agentmon
