// Who is behind each connection. gRPC only tells "fd:N" of a peer, so connections are accepted here, their
// credentials are read, and they are handed to gRPC under descriptor numbers that are not soon used again.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "common/base/unique_fd.h"
#include "common/kernel/proc_fs.h"
#include "daemon/session/caller.h"
#include "daemon/session/listener_sessions.h"
#include "daemon/session/session_cgroups.h"

namespace agentmon {

// Thread-safe.
class Peers {
 public:
  struct Limits {
    size_t connections_per_uid = 2200;
    size_t connections = 9000;
  };
  // admin_gid: members have role admin; -1 = nobody but root.
  Peers(const SessionCgroups& cgroups, gid_t admin_gid, Limits limits);
  // Of a daemon that is not root's: serves its own uid and nobody else.
  Peers(const SessionCgroups& cgroups, const ListenerSessions& listeners, Limits limits);

  // Reads the credentials of an accepted connection and gives it its number; the returned descriptor is
  // to be handed to gRPC, which closes it. Refused: the peer is gone, or has too many connections.
  absl::StatusOr<UniqueFd> Admit(UniqueFd connection);

  size_t OpenConnections();

  // Who calls, by ServerContext::peer(), as things stand now: gone = PermissionDenied; a process that has
  // come to be in a session since it connected has role agent.
  absl::StatusOr<Caller> CallerOf(absl::string_view peer) const;

 private:
  Peers(const SessionCgroups& cgroups, const ListenerSessions* listeners, gid_t admin_gid, Limits limits);
  struct Connection {
    Caller caller;
    uint64_t inode;  // of the socket: a number whose socket has another inode is not this connection
  };
  void ForgetClosed() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  size_t CountOf(uid_t uid) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Role and session as the peer's cgroup tells now.
  absl::Status Place(Caller& caller) const;

  absl::Status PlaceByListener(Caller& caller) const;
  bool IsDaemon(pid_t pid) const;

  const SessionCgroups& cgroups_;
  const ProcFs proc_;
  const ListenerSessions* const listeners_;  // null: sessions are cgroups
  const int own_filters_;
  const gid_t admin_gid_;
  const Limits limits_;
  const int first_number_;
  const int last_number_;
  mutable absl::Mutex mutex_;
  int next_number_ ABSL_GUARDED_BY(mutex_);
  std::map<int, Connection> connections_ ABSL_GUARDED_BY(mutex_);
  // gRPC closes connections without telling: what is closed goes, with its pidfd, when the next one comes.
  // Of many, so that this does not take long, when they have doubled.
  static constexpr size_t kMany = 64;
  size_t sweep_at_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace agentmon
