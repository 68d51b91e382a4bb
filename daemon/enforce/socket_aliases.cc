#include "daemon/enforce/socket_aliases.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "common/kernel/bound_name.h"

namespace agentmon {
namespace {

constexpr int kStackedMax = 8;  // mounts on one name: a daemon before us may have left some
constexpr size_t kLongestName = 5;

absl::StatusOr<UniqueFd> OpenMounts(const std::string& process) {
  UniqueFd fd(open(absl::StrCat("/proc/", process, "/ns/mnt").c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return ErrnoStatus(errno, "open a mount namespace");
  return fd;
}

// This thread sees the mounts of another namespace as long as it lives.
class Visit {
 public:
  Visit(int mounts, int own_mounts) : own_mounts_(own_mounts), error_(Enter(mounts)) {}
  // A thread that could not come back would look every name up for the wrong side.
  ~Visit() {
    if (error_ == 0 && Enter(own_mounts_) != 0) {
      LogError("a thread is stuck in the mounts of a session");
      abort();
    }
  }
  Visit(const Visit&) = delete;
  Visit& operator=(const Visit&) = delete;
  int error() const { return error_; }

 private:
  static int Enter(int mounts) { return setns(mounts, CLONE_NEWNS) == 0 ? 0 : errno; }

  const int own_mounts_;
  const int error_;
};

void Unmount(const std::string& path) {
  for (int i = 0; i < kStackedMax; ++i) {
    if (umount2(path.c_str(), MNT_DETACH | UMOUNT_NOFOLLOW) != 0) return;
  }
}

}  // namespace

absl::StatusOr<std::shared_ptr<SocketAliases>> SocketAliases::Create(const std::string& directory) {
  if (directory.empty())
    return absl::UnavailableError("there is no directory for names of sockets (see the log)");
  if (directory.size() + kLongestName >= sizeof(sockaddr_un{}.sun_path))
    return absl::InvalidArgumentError(absl::StrCat(directory, " is too long for names of sockets"));
  ASSIGN_OR_RETURN(UniqueFd own, OpenMounts("self"));
  return std::shared_ptr<SocketAliases>(new SocketAliases(directory, std::move(own)));
}

std::string SocketAliases::PathOf(uint32_t name) const { return absl::StrCat(directory_, "/", name); }

absl::StatusOr<SocketAliases::Session*> SocketAliases::Find(uint64_t cgroup_id, pid_t tid) {
  struct stat mounts {};
  if (stat(absl::StrCat("/proc/", tid, "/ns/mnt").c_str(), &mounts) != 0)
    return ErrnoStatus(errno, "look at the caller's mounts");
  char root[2];
  if (readlink(absl::StrCat("/proc/", tid, "/root").c_str(), root, sizeof(root)) != 1)
    return absl::FailedPreconditionError("the caller has another root than its mounts");
  std::unique_ptr<Session>& session = sessions_[cgroup_id];
  if (session == nullptr) {
    auto made = std::make_unique<Session>();
    ASSIGN_OR_RETURN(made->mounts, OpenMounts(absl::StrCat(tid)));
    struct stat st {
    }, own{};
    if (fstat(made->mounts.get(), &st) != 0 || fstat(own_mounts_.get(), &own) != 0)
      return ErrnoStatus(errno, "look at mount namespaces");
    if (st.st_ino == own.st_ino)
      return absl::FailedPreconditionError("the session has no mount namespace of its own");
    made->mounts_inode = st.st_ino;
    session = std::move(made);
  }
  if (session->mounts_inode != mounts.st_ino)
    return absl::FailedPreconditionError("the caller has other mounts than its session");
  return session.get();
}

absl::Status SocketAliases::Mount(int fd, uint32_t name) const {
  const std::string path = PathOf(name);
  // By number: the C library has names for these two calls from 2.36 on.
  const UniqueFd tree(static_cast<int>(syscall(
      SYS_open_tree, fd, "", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | static_cast<unsigned>(AT_EMPTY_PATH))));
  if (!tree.valid()) return ErrnoStatus(errno, "copy the mount of a socket");
  Unmount(path);
  // Made without being opened, which the marks on the session's mounts would ask about.
  if (mknod(path.c_str(), S_IFREG | 0400, 0) != 0 && errno != EEXIST)
    return ErrnoStatus(errno, absl::StrCat("make ", path));
  if (syscall(SYS_move_mount, tree.get(), "", AT_FDCWD, path.c_str(), MOVE_MOUNT_F_EMPTY_PATH) != 0)
    return ErrnoStatus(errno, absl::StrCat("mount a socket on ", path));
  return absl::OkStatus();
}

absl::Status SocketAliases::Add(Session& session, int fd, const struct stat& st) {
  ASSIGN_OR_RETURN(std::string bound, BoundName(st));
  const Visit visit(session.mounts.get(), own_mounts_.get());
  if (visit.error() != 0) return ErrnoStatus(visit.error(), "enter the mounts of a session");
  while (session.alive.size() >= kAliveMax) {
    Unmount(PathOf(session.alive.back().name));
    session.by_socket.erase(session.alive.back().socket);
    session.alive.pop_back();
  }
  const auto taken = [&](uint32_t name) {
    return std::any_of(session.alive.begin(), session.alive.end(),
                       [&](const Alias& alias) { return alias.name == name; });
  };
  while (taken(session.next)) session.next = (session.next + 1) % kNames;
  RETURN_IF_ERROR(Mount(fd, session.next));
  const Key socket(st.st_dev, st.st_ino);
  session.alive.push_front({socket, session.next, std::move(bound)});
  session.by_socket[socket] = session.alive.begin();
  session.next = (session.next + 1) % kNames;
  return absl::OkStatus();
}

absl::StatusOr<SocketAliases::Name> SocketAliases::NameFor(uint64_t cgroup_id, pid_t tid, int fd,
                                                           const struct stat& st) {
  absl::MutexLock lock(&mutex_);
  ASSIGN_OR_RETURN(Session * session, Find(cgroup_id, tid));
  const Key socket(st.st_dev, st.st_ino);
  if (const auto known = session->by_socket.find(socket); known != session->by_socket.end()) {
    session->alive.splice(session->alive.begin(), session->alive, known->second);
  } else {
    RETURN_IF_ERROR(Add(*session, fd, st));
  }
  return Name{PathOf(session->alive.front().name), session->alive.front().bound};
}

void SocketAliases::Forget(uint64_t cgroup_id) {
  absl::MutexLock lock(&mutex_);
  sessions_.erase(cgroup_id);
}

}  // namespace agentmon
