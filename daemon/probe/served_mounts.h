// Mounts of sessions that lie behind a server (FUSE, NFS, CIFS): their keepers, and the answers to what
// these are asked. Nothing here touches a file of such a mount.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/unique_fd.h"
#include "common/kernel/mountinfo.h"
#include "daemon/enforce/caller_credentials.h"
#include "daemon/policy/unmarked_mount.h"
#include "daemon/probe/caller.h"
#include "daemon/probe/keeper_message.h"
#include "daemon/probe/open_judge.h"

namespace agentmon {

// What a keeper needs to know of its session.
struct ServedSession {
  uint64_t cgroup_id = 0;
  UniqueFd root;             // O_PATH
  CallerCredentials reader;  // of the session's user
  std::shared_ptr<Gate> gate;
  UniqueFd keeper;  // the end of a channel that the daemon before us had; else one is started
};

// Whether that user, and nobody else it may become, gets into the mount at all: a FUSE mount lets in its
// owner alone, unless it says otherwise.
bool MayEnter(const Mount& mount, uid_t uid);

// Any thread. One thread of its own answers for all sessions: it waits for no server.
class ServedMounts {
 public:
  // on_keeper: the session has another keeper from now on, for who keeps a duplicate of its channel. Any
  // thread.
  ServedMounts(OpenRecords records, std::function<void(uint64_t cgroup_id)> on_keeper)
      : records_(std::move(records)), on_keeper_(std::move(on_keeper)) {}
  ~ServedMounts();

  bool Has(uint64_t cgroup_id) const;
  absl::Status Add(ServedSession session);
  // These are its mounts now: has those marked that are new. A server may not answer: AwaitMarks waits for a
  // while, and what is not marked by then is told by Unmarked until it is.
  void Follow(uint64_t cgroup_id, const std::vector<Mount>& mounts);
  void AwaitMarks(uint64_t cgroup_id, absl::Duration longest);
  std::vector<UnmarkedMount> Unmarked(uint64_t cgroup_id) const;
  // A duplicate of the channel to its keeper; invalid = it has none.
  UniqueFd KeeperOf(uint64_t cgroup_id) const;
  std::vector<uint64_t> Sessions() const;
  void Remove(uint64_t cgroup_id);

 private:
  struct Marked {
    Mount mount;
    bool marked = false;
    std::string why;
  };
  struct Session {
    ServedSession known;
    OpenJudge judge;  // used by the thread alone
    UniqueFd channel;
    UniqueFd group;  // the keeper's, for the next one should it die
    std::map<uint32_t, Marked> mounts;
    int deaths = 0;  // of its keepers
    Session(ServedSession of, const OpenRecords& records)
        : known(std::move(of)), judge(known.cgroup_id, known.gate, records) {}
  };
  using SessionPtr = std::shared_ptr<Session>;

  absl::Status Start() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status StartKeeper(Session& session) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Begin(Session& session, UniqueFd channel) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  SessionPtr Find(uint64_t cgroup_id) const;
  void Run();
  void Serve(Session& session);
  void OnMessage(Session& session, KeeperMessage message);
  void OnMarked(Session& session, const KeeperHead& head);
  void OnQuestion(Session& session, const KeeperMessage& message);
  void Answer(Session& session, const KeeperMessage& question, int content);
  void OnKeeperGone(Session& session);

  const OpenRecords records_;
  const std::function<void(uint64_t cgroup_id)> on_keeper_;
  std::thread thread_;
  CallerIdentities callers_;  // the thread's
  // Questions about programs whose content was asked for. The thread's.
  std::map<std::pair<uint64_t, uint32_t>, KeeperMessage> contents_;
  mutable absl::Mutex mutex_;
  UniqueFd epoll_ ABSL_GUARDED_BY(mutex_);
  UniqueFd wake_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  absl::flat_hash_map<uint64_t, SessionPtr> sessions_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace agentmon
