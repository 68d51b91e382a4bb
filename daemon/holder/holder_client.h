// The daemon's side of the holder.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/unique_fd.h"
#include "daemon/holder/notify_journal.h"

namespace agentmon {

// Core thread. Destroy it after everything that serves listeners: from then on the holder serves them.
class HolderClient {
 public:
  struct Held {
    uint64_t cgroup_id = 0;
    UniqueFd listener;
  };

  // What the holder kept while there was no daemon. Once.
  std::vector<Held> TakeHeld() { return std::move(held_); }
  // CLOCK_BOOTTIME at which the daemon before us was lost, nanoseconds; 0 = the holder is new.
  uint64_t alone_since_ns() const { return alone_since_ns_; }
  // For the notify probe: where it keeps requests that it has not answered yet.
  absl::Span<NotifySlot> slots() const { return journal_.slots(); }

  // Gives the holder a duplicate. Before the listener is served, or a crash loses it.
  absl::Status Add(uint64_t cgroup_id, int listener);
  absl::Status Remove(uint64_t cgroup_id);

  // Readable once the holder is gone. Nothing can be done then but to say so: agents would not survive a
  // crash of this daemon with working file calls.
  int fd() const { return connection_.get(); }

 private:
  friend absl::StatusOr<std::unique_ptr<HolderClient>> JoinHolder(const std::string& runtime_dir);
  HolderClient(UniqueFd connection, NotifyJournal journal, std::vector<Held> held, uint64_t alone_since_ns)
      : connection_(std::move(connection)),
        journal_(std::move(journal)),
        held_(std::move(held)),
        alone_since_ns_(alone_since_ns) {}

  UniqueFd connection_;
  NotifyJournal journal_;
  std::vector<Held> held_;
  const uint64_t alone_since_ns_;
};

// Joins the holder that a former daemon left at RUNTIME/holder.sock, or forks one. To be called while the
// process has one thread only. AlreadyExists when another daemon is connected to it; FailedPrecondition when
// it is of another version.
absl::StatusOr<std::unique_ptr<HolderClient>> StartOrJoinHolder(const std::string& runtime_dir);

// Only joins; Unavailable when nobody listens.
absl::StatusOr<std::unique_ptr<HolderClient>> JoinHolder(const std::string& runtime_dir);

}  // namespace agentmon
