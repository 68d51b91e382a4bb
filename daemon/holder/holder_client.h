// The daemon's side of the holder.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/unique_fd.h"
#include "daemon/holder/loss_actions.h"
#include "daemon/holder/notify_journal.h"

namespace agentmon {

// Core thread. Destroy it after everything that serves listeners: from then on the holder serves them.
class HolderClient {
 public:
  struct Held {
    uint64_t cgroup_id = 0;
    UniqueFd listener;
  };
  struct Unseen {  // requests that the holder has answered in place of a daemon
    uint64_t cgroup_id = 0;
    uint64_t requests = 0;
  };

  // What the holder keeps, and answers until TakeOver. Once.
  std::vector<Held> TakeHeld() { return std::move(held_); }
  // The fanotify groups that it keeps: their questions wait for TakeGroup, for kPatience_ms of the holder.
  // Once for each cgroup; an invalid descriptor = it has none.
  UniqueFd TakeGroup(uint64_t cgroup_id);
  std::vector<uint64_t> GroupsLeft() const;  // that nobody has taken
  // The same of channels to mount keepers.
  UniqueFd TakeMounts(uint64_t cgroup_id);
  // Returns once the holder answers this listener no more: to be served at once. How many requests it had
  // answered since the last daemon was lost.
  absl::StatusOr<uint64_t> TakeOver(uint64_t cgroup_id);
  // CLOCK_BOOTTIME at which the daemon before us was lost, nanoseconds; 0 = the holder is new.
  uint64_t alone_since_ns() const { return alone_since_ns_; }
  // For the notify probe: where it keeps requests that it has not answered yet.
  NotifyShared& shared() const { return journal_.shared(); }

  // Gives the holder a duplicate. Before the listener is served, or a crash loses it.
  // closed: without a daemon its calls fail.
  absl::Status Add(uint64_t cgroup_id, int listener, bool closed, bool sockets_closed = false);
  // The same for a group that asks: without a daemon its answers are no.
  absl::Status AddGroup(uint64_t cgroup_id, int group);
  // A channel to a mount keeper, which ends with the last descriptor of it. Unimplemented as SetLossAction.
  absl::Status AddMounts(uint64_t cgroup_id, int channel);
  // What becomes of the session of this cgroup when no daemon comes. Unimplemented when the holder is one of
  // an earlier build, which cannot.
  absl::Status SetLossAction(uint64_t cgroup_id, int cgroup_directory, LossAction action);
  absl::Status Remove(uint64_t cgroup_id);

  // Readable when the holder has something to tell, and once it is gone.
  int fd() const { return connection_.get(); }
  // What it has told so far; Unavailable once it is gone.
  absl::StatusOr<std::vector<Unseen>> Read();
  // In place of one that is gone: without one, agents would not survive a crash of this daemon with working
  // file calls. It has no listener yet. fd() is another one from here on.
  absl::Status Restart();

 private:
  friend absl::StatusOr<std::unique_ptr<HolderClient>> JoinHolder(const std::string& runtime_dir);
  HolderClient(std::string runtime_dir, UniqueFd connection, NotifyJournal journal, uint64_t knows)
      : runtime_dir_(std::move(runtime_dir)),
        connection_(std::move(connection)),
        journal_(std::move(journal)),
        knows_(knows) {}
  absl::Status ReceiveHeld();

  const std::string runtime_dir_;
  UniqueFd connection_;
  NotifyJournal journal_;
  uint64_t knows_;  // the holder: kWelcome's count
  std::vector<Held> held_;
  std::map<uint64_t, UniqueFd> groups_, mounts_;
  std::vector<Unseen> told_;  // while we waited for something else
  uint64_t alone_since_ns_ = 0;
};

// Joins the holder that a former daemon left at RUNTIME/holder.sock, or starts one: this same program, whose
// main calls RunHolderIfAsked. One that does not answer for 10 s is left to what it holds, and another one
// started. AlreadyExists when another daemon is connected to it; FailedPrecondition when
// it is of another version.
absl::StatusOr<std::unique_ptr<HolderClient>> StartOrJoinHolder(const std::string& runtime_dir);

// Only joins; Unavailable when nobody listens.
absl::StatusOr<std::unique_ptr<HolderClient>> JoinHolder(const std::string& runtime_dir);

}  // namespace agentmon
