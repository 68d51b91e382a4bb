// The holder: keeps the listeners of sessions while there is no daemon, and answers CONTINUE on them, so that
// agents run on unobserved. It records nothing and touches no file.
#pragma once

#include <cstdint>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "common/base/unique_fd.h"
#include "daemon/holder/holder_protocol.h"
#include "daemon/holder/notify_journal.h"

namespace agentmon {

// One thread, one loop. Serves until there is neither a daemon nor a listener, then removes its socket.
class HolderProcess {
 public:
  // accept_socket: listening. The first daemon has kFirstDaemonWait_ms to come.
  HolderProcess(std::string socket_path, UniqueFd accept_socket, NotifyJournal journal);
  void Run();

  static constexpr int kFirstDaemonWait_ms = 30'000;

 private:
  bool Wanted() const { return daemon_.valid() || !listeners_.empty() || waits_for_first_; }
  void Dispatch(uint64_t key, uint32_t events);

  void Accept();
  bool Greet(int connection);
  void OnDaemonMessage();
  void OnDaemonGone();
  // Answers what the dead daemon had taken and not answered: the kernel does not hand it out again.
  void AnswerJournal();

  void Hold(uint64_t cgroup_id, UniqueFd listener);
  void Drop(uint64_t cgroup_id);
  void OnListener(uint64_t cgroup_id, uint32_t events);
  void SetReading(bool reading);

  const std::string socket_path_;
  UniqueFd accept_socket_;
  NotifyJournal journal_;
  UniqueFd epoll_;
  UniqueFd daemon_;              // the connection
  UniqueFd daemon_process_;      // pidfd: also tells its end when a child of it still has the connection
  uint64_t alone_since_ns_ = 0;  // CLOCK_BOOTTIME of the last daemon's end
  bool waits_for_first_ = true;
  absl::flat_hash_map<uint64_t, UniqueFd> listeners_;
};

}  // namespace agentmon
