#include "daemon/rpc/peers.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/refusal.h"
#include "common/base/status.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77  // Linux 6.5
#endif

namespace agentmon {
namespace {

int DescriptorLimit() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  return static_cast<int>(std::min<rlim_t>(limit.rlim_cur, 1 << 20));
}

uint64_t InodeOf(int fd) {
  struct stat st {};
  return ::fstat(fd, &st) == 0 ? st.st_ino : 0;
}

absl::StatusOr<PidFd> PeerPidFd(int socket, pid_t pid) {
  int fd = -1;
  socklen_t size = sizeof(fd);
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &fd, &size) == 0) return PidFd(UniqueFd(fd), pid);
  if (errno != ENOPROTOOPT) return absl::NotFoundError("the peer is gone");
  // Before 6.5: by number. The peer waits for our answer, so its number still means it, or it has died.
  return PidFd::Open(pid);
}

bool InGroup(int socket, gid_t own, gid_t wanted) {
  if (wanted == static_cast<gid_t>(-1)) return false;
  std::vector<gid_t> groups(65536);
  socklen_t size = static_cast<socklen_t>(groups.size() * sizeof(gid_t));
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, groups.data(), &size) != 0) size = 0;
  groups.resize(size / sizeof(gid_t));
  return own == wanted || std::find(groups.begin(), groups.end(), wanted) != groups.end();
}

absl::Status Gone() {
  return Refusal(absl::StatusCode::kPermissionDenied, "PEER_GONE",
                 "the process that opened this connection has ended", "open a connection of your own");
}

}  // namespace

Peers::Peers(const SessionCgroups& cgroups, gid_t admin_gid, Limits limits)
    : Peers(cgroups, nullptr, admin_gid, limits) {}

Peers::Peers(const SessionCgroups& cgroups, const ListenerSessions& listeners, Limits limits)
    : Peers(cgroups, &listeners, static_cast<gid_t>(-1), limits) {}

Peers::Peers(const SessionCgroups& cgroups, const ListenerSessions* listeners, gid_t admin_gid, Limits limits)
    : cgroups_(cgroups),
      listeners_(listeners),
      own_filters_(proc_.SeccompFilters(getpid()).value_or(-1)),
      admin_gid_(admin_gid),
      limits_(limits),
      // The upper three quarters of the table: low numbers are taken and given back by everything else.
      first_number_(DescriptorLimit() / 4),
      last_number_(DescriptorLimit() - 1),
      next_number_(first_number_) {}

absl::Status Peers::Place(Caller& caller) const {
  const auto path = proc_.CgroupPath(caller.pid);
  // Alive after the read: what was read belongs to this process and not to a later one of that number.
  if (!caller.pidfd->Alive()) return Gone();
  if (!path.ok() || IsSessionCgroupPath(*path)) {
    caller.role = Role::kAgent;
    caller.session = path.ok() ? cgroups_.SessionOf(*path) : "";
  }
  return listeners_ == nullptr ? absl::OkStatus() : PlaceByListener(caller);
}

bool Peers::IsDaemon(pid_t pid) const {
  const auto stat = proc_.Stat(pid);
  return pid == ::getpid() || (stat.ok() && stat->comm == "agentmond");
}

// Filters are inherited and never lost: a process that is under more of them than this daemon may be in a
// session, and one that is under no more is in none.
absl::Status Peers::PlaceByListener(Caller& caller) const {
  const int filters = proc_.SeccompFilters(caller.pid).value_or(-1);
  const std::string session = listeners_->SessionOf(caller.pid);
  if (!caller.pidfd->Alive()) return Gone();
  if (filters < 0 || own_filters_ < 0 || filters > own_filters_ || !session.empty()) {
    caller.role = Role::kAgent;
    caller.session = session;
  }
  return absl::OkStatus();
}

absl::StatusOr<UniqueFd> Peers::Admit(UniqueFd connection) {
  ucred cred{};
  socklen_t size = sizeof(cred);
  if (::getsockopt(connection.get(), SOL_SOCKET, SO_PEERCRED, &cred, &size) != 0) {
    return ErrnoStatus(errno, "credentials of a connection");
  }
  if (cred.pid <= 0) return absl::PermissionDeniedError("the peer's process is not visible from here");
  if (listeners_ != nullptr && cred.uid != ::geteuid())
    return absl::PermissionDeniedError(absl::StrCat("uid ", cred.uid, " is not the user of this daemon"));
  // Such daemons make calls in the place of their sessions' processes.
  if (listeners_ != nullptr && IsDaemon(cred.pid))
    return absl::PermissionDeniedError("the peer is a daemon, which is nobody's client");
  ASSIGN_OR_RETURN(PidFd pidfd, PeerPidFd(connection.get(), cred.pid));
  Caller caller;
  caller.pid = cred.pid;
  caller.uid = cred.uid;
  caller.gid = cred.gid;
  caller.pidfd = std::make_shared<const PidFd>(std::move(pidfd));
  const bool admin = cred.uid == 0 || InGroup(connection.get(), cred.gid, admin_gid_);
  caller.role = admin ? Role::kAdmin : Role::kUser;
  RETURN_IF_ERROR(Place(caller));

  absl::MutexLock lock(&mutex_);
  if (connections_.size() >= sweep_at_) {
    ForgetClosed();
    sweep_at_ = connections_.size() < kMany ? 0 : 2 * connections_.size();
  }
  if (connections_.size() >= limits_.connections || CountOf(cred.uid) >= limits_.connections_per_uid) {
    ForgetClosed();
    if (connections_.size() >= limits_.connections || CountOf(cred.uid) >= limits_.connections_per_uid) {
      return absl::ResourceExhaustedError(absl::StrCat("uid ", cred.uid, " has too many connections open"));
    }
  }
  UniqueFd numbered(::fcntl(connection.get(), F_DUPFD_CLOEXEC, next_number_));
  if (!numbered.valid() && next_number_ > first_number_) {
    numbered.Reset(::fcntl(connection.get(), F_DUPFD_CLOEXEC, first_number_));
  }
  if (!numbered.valid()) return ErrnoStatus(errno, "number a connection");
  next_number_ = numbered.get() >= last_number_ ? first_number_ : numbered.get() + 1;
  connections_[numbered.get()] = {std::move(caller), InodeOf(numbered.get())};
  return numbered;
}

size_t Peers::OpenConnections() {
  absl::MutexLock lock(&mutex_);
  ForgetClosed();
  return connections_.size();
}

void Peers::ForgetClosed() {
  for (auto it = connections_.begin(); it != connections_.end();) {
    it = InodeOf(it->first) == it->second.inode ? std::next(it) : connections_.erase(it);
  }
}

size_t Peers::CountOf(uid_t uid) const {
  return std::count_if(connections_.begin(), connections_.end(),
                       [&](const auto& c) { return c.second.caller.uid == uid; });
}

absl::StatusOr<Caller> Peers::CallerOf(absl::string_view peer) const {
  int number = -1;
  if (!absl::ConsumePrefix(&peer, "fd:") || !absl::SimpleAtoi(peer, &number)) {
    return absl::InternalError(absl::StrCat("unexpected peer ", peer));
  }
  Caller caller;
  {
    absl::MutexLock lock(&mutex_);
    const auto it = connections_.find(number);
    if (it == connections_.end() || InodeOf(number) != it->second.inode) return Gone();
    caller = it->second.caller;
  }
  RETURN_IF_ERROR(Place(caller));
  return caller;
}

}  // namespace agentmon
