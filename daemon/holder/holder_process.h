// The holder: keeps the listeners of sessions, and answers CONTINUE on them while no daemon does, so that
// agents run on unobserved. Where a policy stops something it keeps the fanotify group too and answers no,
// once the next daemon has not come for kPatience_ms; sessions that are to be frozen or killed then are. It
// records nothing and touches no file.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "common/base/unique_fd.h"
#include "daemon/holder/holder_protocol.h"
#include "daemon/holder/loss_actions.h"
#include "daemon/holder/notify_journal.h"
#include "daemon/probe/call_table.h"

namespace agentmon {

// One thread, one loop. Serves until there is neither a daemon nor a listener, then removes its socket.
//
// A listener is answered by the holder until a daemon takes it over, and again once that daemon is gone.
// While a daemon serves it, the first request after a quiet time wakes the holder, which then looks four
// times a second whether the daemon comes to what waits (NotifyTurns), until there are no requests for a
// second. If the daemon does not, for kStepInLooks of them, the holder answers in its place until it comes
// again, and tells it how many requests it has missed.
class HolderProcess {
 public:
  // accept_socket: listening. The first daemon has kFirstDaemonWait_ms to come.
  HolderProcess(std::string socket_path, UniqueFd accept_socket, NotifyJournal journal);
  void Run();

  static constexpr int kFirstDaemonWait_ms = 30'000;
  static constexpr int kLook_ms = 250;
  static constexpr int kStepInLooks = 2;
  static constexpr int kQuietLooks = 4;
  static constexpr int kPatience_ms = 1'500;

 private:
  enum class Server { kHolder, kDaemon, kHolderInPlace };
  struct Held {
    UniqueFd fd;
    Server server = Server::kHolder;
    bool closed = false;          // its calls fail where nobody has judged them
    bool sockets_closed = false;  // also those that name a socket
    uint64_t answered = 0;        // requests that no daemon saw, nor has been told of
    bool watched = false;         // else nothing is asked of it, and the rest means nothing
    uint64_t turns = 0;           // at the last look
    int waited = 0;               // looks that found a request and no turn of the daemon
    int quiet = 0;                // looks that found nothing
  };

  // A fanotify group whose questions must be answered.
  struct Group {
    UniqueFd fd;
    bool watched = false;
    uint64_t turns = 0;  // at the last look; odd: a thread of the daemon was at it
    int waited = 0;      // looks that found a question, and the same turn
    int quiet = 0;
  };

  bool Wanted() const {
    return daemon_.valid() || newcomer_.valid() || !listeners_.empty() || !groups_.empty() ||
           !mounts_.empty() || waits_for_first_ || !losses_.empty();
  }
  int Timeout_ms() const;
  void Dispatch(uint64_t key, uint32_t events);

  void Accept();
  void OnNewcomer();
  bool Greet(int connection);
  void OnDaemonMessage();
  void OnDaemonGone();
  void Take(uint64_t cgroup_id);
  void DropNewcomer();

  void Hold(uint64_t cgroup_id, UniqueFd listener, Server server, uint64_t closed);
  void HoldGroup(uint64_t cgroup_id, UniqueFd group);
  void SetLossAction(UniqueFd directory, uint64_t action);
  // Answers no to what the lost daemon had read of a group and not answered.
  void SweepGroup(int group);
  void DenyGroup(int group);
  void OnGroup(uint64_t cgroup_id);
  // Asks to be told of the group's next question, once.
  void WakeForGroup(uint64_t cgroup_id, Group& group);
  void LookAtGroup(uint64_t cgroup_id, Group& group);
  void OnPatienceOver();
  // The last daemon was lost, and the time is not over in which the next may come and take over.
  bool Patient() const { return patient_until_ns_ != 0; }
  void Drop(uint64_t cgroup_id);
  void DropListener(uint64_t cgroup_id);
  bool AnswerOne(const Held& held, const seccomp_notif& request) const;
  void OnListener(uint64_t cgroup_id, uint32_t events);
  void Serve(uint64_t cgroup_id, Held& held, Server server);
  void Answer(Held& held);

  void StartWatching(uint64_t cgroup_id, Held& held);
  void StopWatching(uint64_t cgroup_id, Held& held);
  void LookAtAll();
  void Look(uint64_t cgroup_id, Held& held);
  void TellLost(uint64_t cgroup_id, Held& held);
  // A request of this listener that the daemon has taken, and that we have not answered either.
  bool DaemonHasRequest(uint64_t cgroup_id) const;
  // Answers those: the kernel does not hand them out again.
  void AnswerTaken(uint64_t cgroup_id, Held& held);

  // The path may be another holder's by now.
  void RemoveSocket() const;

  const std::string socket_path_;
  ino_t socket_inode_ = 0;
  UniqueFd accept_socket_;
  NotifyJournal journal_;
  const CallTable calls_;
  UniqueFd epoll_;
  UniqueFd newcomer_;            // a connection that has not said hello yet
  UniqueFd daemon_;              // the connection
  UniqueFd daemon_process_;      // pidfd: also tells its end when a child of it still has the connection
  uint64_t alone_since_ns_ = 0;  // CLOCK_BOOTTIME of the last daemon's end
  bool waits_for_first_ = true;
  absl::flat_hash_map<uint64_t, Held> listeners_;
  absl::flat_hash_map<uint64_t, Group> groups_;
  absl::flat_hash_map<uint64_t, UniqueFd> mounts_;  // channels to mount keepers, which answer for themselves
  LossActions losses_;
  int64_t patient_until_ns_ = 0;  // CLOCK_BOOTTIME; 0 = not waiting for a daemon
  int watched_ = 0;
  int64_t next_look_ns_ = 0;                      // CLOCK_BOOTTIME, while something is watched
  uint64_t answered_in_slot_[kNotifySlots] = {};  // ids
};

// What a program that starts holders does first in main: runs the holder and ends the process when it was
// started as one (holder_client.cc).
void RunHolderIfAsked(int argc, char** argv);

}  // namespace agentmon
