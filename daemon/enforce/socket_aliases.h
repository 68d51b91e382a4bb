// Names for sockets that processes of a session can reach and cannot change: each is a mount of the socket's
// file in the session's own mount namespace, below a directory of the daemon.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "common/base/unique_fd.h"

namespace agentmon {

// Any thread; one that makes names has called PrepareToActForCallers(). A name means its socket as long as it
// is among the last kAliveMax of its session that were asked for. They go with the mount namespace.
class SocketAliases {
 public:
  static constexpr size_t kAliveMax = 256;  // in a session
  static constexpr uint32_t kNames =
      1024;  // taken in turn, so that one that is gone means nothing for a while

  // directory: the daemon's own, that everybody may search; the names in it must fit into a socket's address.
  static absl::StatusOr<std::shared_ptr<SocketAliases>> Create(const std::string& directory);

  struct Name {
    std::string path;
    std::string bound;  // what the socket was bound to; empty: not known
  };
  // The name of this socket for the session. tid: a waiting thread of it; fd: O_PATH, found for that thread;
  // st: of it. FailedPrecondition where the thread's root or mounts are not those of the session.
  absl::StatusOr<Name> NameFor(uint64_t cgroup_id, pid_t tid, int fd, const struct stat& st);
  // The session has ended.
  void Forget(uint64_t cgroup_id);

 private:
  using Key = std::pair<dev_t, ino_t>;  // held by the mount, so that they mean no other socket
  struct Alias {
    Key socket;
    uint32_t name;
    std::string bound;
  };
  struct Session {
    UniqueFd mounts;  // its namespace
    ino_t mounts_inode = 0;
    uint32_t next = 0;
    std::list<Alias> alive;  // the one that was asked for last comes first
    std::map<Key, std::list<Alias>::iterator> by_socket;
  };

  SocketAliases(std::string directory, UniqueFd own_mounts)
      : directory_(std::move(directory)), own_mounts_(std::move(own_mounts)) {}
  std::string PathOf(uint32_t name) const;
  absl::StatusOr<Session*> Find(uint64_t cgroup_id, pid_t tid) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Within the session's mounts.
  absl::Status Mount(int fd, uint32_t name) const;
  absl::Status Add(Session& session, int fd, const struct stat& st) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string directory_;
  const UniqueFd own_mounts_;
  absl::Mutex mutex_;
  absl::flat_hash_map<uint64_t, std::unique_ptr<Session>> sessions_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace agentmon
