// Source "fanotify": what the programs of a session open and what they have written, from marks on the mounts
// of the session's own mount namespace.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "common/base/task_runner.h"
#include "common/base/unique_fd.h"
#include "daemon/enforce/caller_credentials.h"
#include "daemon/probe/caller.h"
#include "daemon/probe/fanotify_group.h"
#include "daemon/probe/notify_slot.h"
#include "daemon/probe/open_dedupe.h"
#include "daemon/probe/open_judge.h"
#include "daemon/probe/probe.h"
#include "daemon/probe/record_queue.h"
#include "daemon/probe/served_mounts.h"
#include "daemon/probe/served_places.h"

namespace agentmon {

// OPEN for the first open of a file (again after it was written to), WRITE when a file that was open for
// writing is closed. The kernel merges events that wait, so counts are lower bounds. Not seen: files of
// unwatched file systems (IsUnwatchedFileSystem), where nothing is asked those of file systems behind a
// server, of mount namespaces that a program of the session makes for
// itself, and for some milliseconds those of a mount that was just made.
class FanotifyProbe : public Probe {
 public:
  struct Options {
    size_t queue_bytes = size_t{8} << 20;
    size_t max_sessions = 100;  // of the 128 groups that root has by default, other programs need some
    std::shared_ptr<OpenDedupe> dedupe;    // shared with the notify probe; may be null
    std::shared_ptr<ExecPermits> permits;  // likewise
    std::shared_ptr<ServedPlaces> served;  // likewise: where its sessions' mounts behind servers stand
    int verdict_threads = 2;
    NotifyShared* shared = nullptr;  // with the holder; may be null
    // A session that is asked has another mount keeper (KeeperOf) than before, or its first one. Any thread;
    // not called from AddSession.
    std::function<void(uint64_t cgroup_id)> on_keeper;
  };
  // Core thread. `core` must outlive the probe.
  FanotifyProbe(TaskRunner& core, Options options);
  ~FanotifyProbe() override;

  absl::string_view name() const override { return "fanotify"; }
  absl::Status Attach(RecordSink& sink) override;
  ProbeStats Stats() const override;

  // From the return on, what the session opens is seen. The reason why not, otherwise. With a gate it is
  // asked before each first open and each exec, and answers by it.
  // `group`: the one that the daemon before us had for it, when it is kept, and `keeper` likewise.
  absl::Status AddSession(uint64_t cgroup_id, pid_t pid, std::shared_ptr<Gate> gate = nullptr,
                          UniqueFd group = UniqueFd(), UniqueFd keeper = UniqueFd());
  // The descriptor of a session that is asked, for who keeps a duplicate; -1 = it is not asked.
  int GroupOf(uint64_t cgroup_id);
  // Each session that is asked, under the probe's lock; turns: how often a thread went to its questions.
  void EachAsked(const std::function<void(uint64_t cgroup_id, int group, uint64_t turns)>& callback);
  // A duplicate of the channel to the session's mount keeper; invalid = it has none.
  UniqueFd KeeperOf(uint64_t cgroup_id) const;
  std::vector<uint64_t> SessionsWithKeepers() const;
  // Mounts behind servers, of a session that is asked, about which nothing is asked.
  std::vector<UnmarkedMount> Unmarked(uint64_t cgroup_id) const;
  // The session's policy was switched: what was allowed before is asked again.
  void PolicyChanged(uint64_t cgroup_id);
  void RemoveSession(uint64_t cgroup_id);
  // Nothing that the session did still waits to be read; true for a session that is not known.
  bool Settled(uint64_t cgroup_id);
  // Core thread: hands over what was read.
  void Drain() { queue_->Drain(); }

 private:
  struct Session {
    uint64_t cgroup_id = 0;
    std::atomic<bool> reading{false};
    std::atomic<uint64_t> turns{0};
    std::atomic<int64_t> answered_ns{0};   // its last question
    std::unique_ptr<FanotifyGroup> group;  // used by one thread at a time once it is added
    std::unique_ptr<OpenJudge> judge;      // null: nothing is asked
    std::shared_ptr<Gate> gate;            // the judge's
    CallerCredentials user;
    std::vector<UnmarkedMount> unkept;  // that came later and have no keeper; under the probe's lock
  };

  void Run();
  void RunVerdicts();
  void RunCloser();
  void NoteDescriptor(int fd);
  void CountTurn(uint64_t cgroup_id);
  void TakeTurn(Session& session, CallerIdentities& callers);
  bool ComesSoon(const Session& session);
  // Its end is the closer's: closing a group waits for programs that wait for answers of other groups.
  std::shared_ptr<Session> MakeSession();
  void Serve(uint64_t key, CallerIdentities& callers);
  std::shared_ptr<Session> FindSession(uint64_t number);
  // Has its mounts behind servers marked, where it is asked; the first time it gets a keeper. True for that.
  absl::StatusOr<bool> FollowServed(const Session& session, UniqueFd keeper);
  void ForgetServed(uint64_t cgroup_id);
  // What FollowServed has failed with, for Unmarked.
  void NoteUnkept(Session& session, const absl::Status& status);
  absl::Status WatchSession(const Session& session, uint64_t number);
  void Record(const Session& session, const FanotifyEvent& event, CallerIdentities& callers);

  TaskRunner& core_;
  const Options options_;
  std::shared_ptr<RecordQueue> queue_;
  std::unique_ptr<ServedMounts> served_;
  UniqueFd epoll_;
  UniqueFd wake_;
  std::atomic<bool> stopping_{false};
  std::thread reader_;
  UniqueFd asked_epoll_;  // groups of sessions that wait for an answer
  std::vector<std::thread> verdict_threads_;
  const int most_awake_ = static_cast<int>(std::thread::hardware_concurrency() / 2);
  std::atomic<int> awake_{0};
  std::thread closer_;
  absl::Mutex closer_mutex_;
  bool closer_stops_ ABSL_GUARDED_BY(closer_mutex_) = false;
  std::vector<Session*> to_close_ ABSL_GUARDED_BY(closer_mutex_);
  mutable absl::Mutex mutex_;
  absl::flat_hash_map<uint64_t, std::shared_ptr<Session>> sessions_ ABSL_GUARDED_BY(mutex_);  // by number
  absl::flat_hash_map<uint64_t, uint64_t> numbers_ ABSL_GUARDED_BY(mutex_);                   // by cgroup id
  uint64_t next_number_ ABSL_GUARDED_BY(mutex_) = 1;
};

}  // namespace agentmon
