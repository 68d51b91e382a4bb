// Sessions that no cgroup holds: those of a daemon that runs as an ordinary user. What tells their processes
// apart is the seccomp listener, which is inherited, cannot be left, and hangs up with the last of them.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "common/kernel/proc_fs.h"

namespace agentmon {

// Stands for the cgroup's id in records and at the holder; the same after a restart of the daemon. No cgroup
// has it: their ids are small.
uint64_t ListenerNumber(absl::string_view session);

// Which processes were met behind which listener. Thread-safe. The kernel has no list of who is behind a
// filter: those that a listener has told of, and what descends from them, are found in /proc. Every program
// that is started is told, so what is missed is a process that has started none, and whose forefathers ended
// before they were looked for.
class ListenerSessions {
 public:
  explicit ListenerSessions(ProcFs proc = ProcFs()) : proc_(std::move(proc)) {}

  // afresh: it has just started a program, so that this number means it and nobody earlier.
  void Saw(const std::string& session, pid_t pid, bool afresh);
  void Forget(const std::string& session);
  // Adds who has the session's name in its environment and is under more filters than this process. For a
  // daemon that starts, which was told of nobody, and for ends. A process can take it out of its environment
  // and is missed, and it can name another session of its user.
  void SeekByEnvironment(const std::string& session);
  // Alive now, zombies left out.
  std::vector<pid_t> Processes(const std::string& session);
  // By the process itself or its forefathers; empty = not known to be in one.
  std::string SessionOf(pid_t pid) const;
  // To each of them; a number that was taken over by another process is not signalled.
  void Signal(const std::string& session, int signal);

 private:
  using Births = std::map<pid_t, uint64_t>;  // in ticks since boot
  std::vector<std::pair<pid_t, uint64_t>> Find(const std::string& session);

  const ProcFs proc_;
  mutable absl::Mutex mutex_;
  std::map<std::string, Births> seen_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace agentmon
