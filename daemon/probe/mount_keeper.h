// The mount keeper: a process of its own, one for each session that has mounts of file systems behind a
// server (FUSE, NFS, CIFS). It marks these mounts and takes the kernel's questions about them, which means
// opening the file: a server that hangs holds up this process, and nothing of the daemon's. The daemon
// judges; where it does not answer for kKeeperPatience_ns the keeper says no. So it is also what is left when
// the daemon dies, and goes on with the next one.
#pragma once

#include <sys/fanotify.h>
#include <sys/types.h>

#include <cstdint>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "common/base/unique_fd.h"
#include "daemon/probe/keeper_message.h"

namespace agentmon {

// Ends, with the process, when nobody is left at the other end of the channel: neither a daemon nor the
// holder, which keeps the end of a daemon that died. Threads that hang in the kernel then are left to it.
class MountKeeper {
 public:
  // group: of FAN_CLASS_CONTENT, without marks or with those of an earlier keeper. root: of the session.
  MountKeeper(UniqueFd channel, UniqueFd group, UniqueFd root)
      : channel_(std::move(channel)), group_(std::move(group)), root_(std::move(root)) {}
  [[noreturn]] void Run();

  static constexpr int kReadersMost = 8;

 private:
  // With whose rights files are opened: a server may refuse root what it gives the session's user.
  struct Rights {
    uid_t uid = 0;
    gid_t gid = 0;
    std::vector<gid_t> groups;
  };

  void OnMessage(const KeeperMessage& message);
  void Begin(const KeeperMessage& message);
  // In a child: its rights are those of the mount's owner meanwhile, and it may hang.
  void Mark(const KeeperMessage& message);
  [[noreturn]] void MarkInChild(const KeeperHead& head, const char* mount_point);

  void StartReader() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Read();
  // Room is made for another one while this one is busy.
  void SetBusy(bool busy);
  // A file could not be looked at, and whoever asked is denied.
  void TellUnopened(int error);
  void Handle(const fanotify_event_metadata& event);
  bool Ask(const fanotify_event_metadata& event);
  bool SendContent(uint32_t number, int file, int64_t size);
  // The daemon's word on a question; type kUnopened when it has not come.
  KeeperHead Await(uint32_t number);

  const UniqueFd channel_;
  const UniqueFd group_;
  const UniqueFd root_;
  absl::Mutex mutex_;
  bool begun_ ABSL_GUARDED_BY(mutex_) = false;
  Rights rights_ ABSL_GUARDED_BY(mutex_);
  int readers_ ABSL_GUARDED_BY(mutex_) = 0;
  int idle_ ABSL_GUARDED_BY(mutex_) = 0;
  uint32_t next_ ABSL_GUARDED_BY(mutex_) = 1;
  absl::flat_hash_map<uint32_t, KeeperHead> words_ ABSL_GUARDED_BY(mutex_);  // of questions that wait
};

// Starts one; channel: its end.
absl::Status StartMountKeeper(int channel, int group, int root);
// For main: never returns in a process that StartMountKeeper has started.
void RunMountKeeperIfAsked(int argc, char** argv);

}  // namespace agentmon
