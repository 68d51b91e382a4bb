#include "daemon/probe/fanotify_group.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <sys/fanotify.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/kernel/mountinfo.h"
#include "common/kernel/proc_fs.h"
#include "daemon/enforce/caller_lookup.h"

#ifndef FAN_MARK_EVICTABLE
#define FAN_MARK_EVICTABLE 0x00000200  // Linux 5.19
#endif

namespace agentmon {
namespace {

constexpr uint64_t kHeard = FAN_OPEN | FAN_CLOSE_WRITE;
constexpr size_t kReadBytes = 4096;  // some 170 events, each with an open descriptor
// Each of these waits until those before it are answered.
constexpr size_t kAskedReadBytes = 8 * FAN_EVENT_METADATA_LEN;

absl::Status CheckOwnNamespace(int process, pid_t pid) {
  struct stat own {};
  if (fstatat(process, "ns/mnt", &own, 0) != 0)
    return ErrnoStatus(errno, "look at the session's mount namespace");
  const auto parent = ProcFs().Stat(pid);
  if (!parent.ok()) return parent.status();
  for (const std::string& other :
       {std::string("/proc/self"), std::string("/proc/1"), absl::StrCat("/proc/", parent->parent)}) {
    struct stat st {};
    // A parent that is gone has no namespace to share.
    if (stat(absl::StrCat(other, "/ns/mnt").c_str(), &st) != 0) continue;
    if (st.st_ino == own.st_ino && st.st_dev == own.st_dev) {
      return absl::FailedPreconditionError("the session has no mount namespace of its own");
    }
  }
  return absl::OkStatus();
}

// Never out of the root, and never through a link: a mark on a mount of the host would watch the host.
UniqueFd OpenBelow(int root, const char* path) {
  open_how how{};
  how.flags = O_PATH | O_CLOEXEC | O_NOFOLLOW;
  how.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
  return UniqueFd(static_cast<int>(syscall(SYS_openat2, root, path, &how, sizeof(how))));
}

absl::StatusOr<std::string> ReadFromStart(int fd) {
  std::string text;
  char buffer[16384];
  if (lseek(fd, 0, SEEK_SET) != 0) return ErrnoStatus(errno, "rewind mountinfo");
  for (;;) {
    const ssize_t n = read(fd, buffer, sizeof(buffer));
    if (n < 0) return ErrnoStatus(errno, "read mountinfo");
    if (n == 0) return text;
    text.append(buffer, static_cast<size_t>(n));
  }
}

}  // namespace

bool IsUnwatchedFileSystem(absl::string_view fs_type) {
  static constexpr absl::string_view kTypes[] = {"proc", "sysfs", "devpts", "devtmpfs", "cgroup", "cgroup2",
                                                 "mqueue", "debugfs", "tracefs", "securityfs", "bpf",
                                                 "pstore", "configfs", "efivarfs", "binfmt_misc", "hugetlbfs",
                                                 "fusectl", "rpc_pipefs", "nsfs", "selinuxfs", "resctrl",
                                                 // has no files of its own
                                                 "autofs"};
  return std::find(std::begin(kTypes), std::end(kTypes), fs_type) != std::end(kTypes);
}

absl::Status FanotifyGroup::CheckSupport() {
  const UniqueFd root(open("/", O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!root.valid()) return ErrnoStatus(errno, "open /");
  if (!OpenBelow(root.get(), ".").valid()) {
    return ErrnoStatus(errno, "openat2, which finds the mounts of sessions (RestrictSUIDSGID= refuses it)");
  }
  const UniqueFd group(fanotify_init(FAN_CLASS_NOTIF | FAN_CLOEXEC, O_RDONLY | O_CLOEXEC));
  // Other programs of root may have all groups today and fewer when a session begins.
  if (!group.valid() && errno != EMFILE) return ErrnoStatus(errno, "fanotify_init");
  return absl::OkStatus();
}

namespace {

absl::StatusOr<UniqueFd> NewGroup(unsigned kind, unsigned file_flags) {
  UniqueFd group(
      fanotify_init(kind | FAN_CLOEXEC | FAN_NONBLOCK, O_RDONLY | O_CLOEXEC | O_LARGEFILE | file_flags));
  if (!group.valid() && errno == EMFILE) {
    return absl::ResourceExhaustedError("no fanotify groups are left (fs.fanotify.max_user_groups)");
  }
  if (!group.valid()) return ErrnoStatus(errno, "fanotify_init");
  return group;
}

// Or the way to it leads through one that is: to look for it there may hang. Where the root is served, it is
// no other than the rest.
bool IsServed(const Mount& mount, const std::vector<Mount>& mounts) {
  if (IsServedFileSystem(mount.fs_type)) return true;
  return std::any_of(mounts.begin(), mounts.end(), [&](const Mount& other) {
    return IsServedFileSystem(other.fs_type) && other.mount_point != "/" &&
           absl::StartsWith(mount.mount_point, absl::StrCat(other.mount_point, "/"));
  });
}

}  // namespace

FanotifyEvent EventOfMask(uint64_t mask) {
  FanotifyEvent event;
  event.opened = (mask & FAN_OPEN) != 0;
  event.asks_open = (mask & FAN_OPEN_PERM) != 0;
  event.asks_exec = (mask & FAN_OPEN_EXEC_PERM) != 0;
  event.closed_after_write = (mask & FAN_CLOSE_WRITE) != 0;
  event.directory = (mask & FAN_ONDIR) != 0;
  return event;
}

// It must not lose a question: what is lost is allowed.
absl::StatusOr<UniqueFd> NewAskedGroup(unsigned file_flags) {
  return NewGroup(FAN_CLASS_CONTENT | FAN_UNLIMITED_QUEUE | FAN_UNLIMITED_MARKS | FAN_REPORT_TID, file_flags);
}

int MarkMountBelow(int group, int root, const char* mount_point, uint64_t number, uint64_t mask) {
  const UniqueFd fd = OpenBelow(root, mount_point);
  if (!fd.valid()) return errno;
  struct statx st {};
  // Nothing but the number of the mount, for which no server is asked. Another mount covers this path, or has
  // taken its place meanwhile.
  if (statx(fd.get(), "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, 0, &st) != 0) return errno;
  if ((st.stx_mask & STATX_MNT_ID) == 0 || st.stx_mnt_id != number) return ESTALE;
  char path[64];
  snprintf(path, sizeof(path), "/proc/self/fd/%d", fd.get());
  return fanotify_mark(group, FAN_MARK_ADD | FAN_MARK_MOUNT, mask, AT_FDCWD, path) == 0 ? 0 : errno;
}

absl::StatusOr<std::unique_ptr<FanotifyGroup>> FanotifyGroup::Of(pid_t pid, FanotifyMode mode,
                                                                 UniqueFd group) {
  // Everything below is looked up from this descriptor, so that it is of one process even if its number is
  // reused.
  UniqueFd process(open(absl::StrCat("/proc/", pid).c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!process.valid()) return ErrnoStatus(errno, "open the session's process");
  RETURN_IF_ERROR(CheckOwnNamespace(process.get(), pid));
  UniqueFd mountinfo(openat(process.get(), "mountinfo", O_RDONLY | O_CLOEXEC));
  if (!mountinfo.valid()) return ErrnoStatus(errno, "open mountinfo");
  UniqueFd root(openat(process.get(), "root", O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!root.valid()) return ErrnoStatus(errno, "open the session's root");
  return std::unique_ptr<FanotifyGroup>(
      new FanotifyGroup(mode, std::move(group), std::move(mountinfo), std::move(root)));
}

absl::StatusOr<std::unique_ptr<FanotifyGroup>> FanotifyGroup::Create(pid_t pid, FanotifyMode mode) {
  ASSIGN_OR_RETURN(UniqueFd group, mode == FanotifyMode::kHear ? NewGroup(FAN_CLASS_NOTIF, O_NOATIME)
                                                               : NewAskedGroup(O_NOATIME));
  return Of(pid, mode, std::move(group));
}

absl::StatusOr<std::unique_ptr<FanotifyGroup>> FanotifyGroup::Adopt(pid_t pid, UniqueFd group) {
  ASSIGN_OR_RETURN(std::unique_ptr<FanotifyGroup> adopted, Of(pid, FanotifyMode::kAsk, std::move(group)));
  adopted->ForgetIgnored();
  return adopted;
}

absl::StatusOr<int> FanotifyGroup::MarkMounts() {
  ASSIGN_OR_RETURN(const std::string text, ReadFromStart(mountinfo_.get()));
  int marks = 0;
  const std::vector<Mount> mounts = ParseMountinfo(text);
  for (const Mount& mount : mounts) {
    if (IsUnwatchedFileSystem(mount.fs_type) || IsServed(mount, mounts)) continue;
    if (MarkMountBelow(group_.get(), root_.get(), mount.mount_point.c_str(), static_cast<uint64_t>(mount.id),
                       asks() ? kFanotifyAsked : kHeard) == 0)
      ++marks;
  }
  if (marks == 0) return absl::NotFoundError("none of the session's mounts could be marked");
  return marks;
}

absl::StatusOr<std::vector<Mount>> FanotifyGroup::ServedMounts() const {
  ASSIGN_OR_RETURN(const std::string text, ReadFromStart(mountinfo_.get()));
  const std::vector<Mount> mounts = ParseMountinfo(text);
  std::vector<Mount> served;
  for (const Mount& mount : mounts) {
    if (!IsUnwatchedFileSystem(mount.fs_type) && IsServed(mount, mounts)) served.push_back(mount);
  }
  return served;
}

void FanotifyGroup::Answer(int fd, bool allow) {
  const fanotify_response response{fd, static_cast<uint32_t>(allow ? FAN_ALLOW : FAN_DENY)};
  ssize_t n;
  do {
    n = write(group_.get(), &response, sizeof(response));
  } while (n < 0 && errno == EINTR);
}

bool FanotifyGroup::Waits() const {
  int bytes = 0;
  return ioctl(group_.get(), FIONREAD, &bytes) == 0 && bytes > 0;
}

uint64_t FanotifyGroup::Read(const std::function<bool(const FanotifyEvent&)>& on_event,
                             const std::function<void(const FanotifyEvent&)>& answered) {
  alignas(fanotify_event_metadata) char buffer[kReadBytes];
  uint64_t lost = 0;
  for (;;) {
    const ssize_t n = read(group_.get(), buffer, asks() ? kAskedReadBytes : sizeof(buffer));
    if (n < 0 && errno == EAGAIN) return lost;
    if (n < 0 && errno == EBADF) return lost;
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {  // the file of the first event cannot be opened: that event is gone
      ++lost;
      if (n == 0) return lost;
      continue;
    }
    const auto* meta = reinterpret_cast<const fanotify_event_metadata*>(buffer);
    for (ssize_t left = n; FAN_EVENT_OK(meta, left); meta = FAN_EVENT_NEXT(meta, left)) {
      if ((meta->mask & FAN_Q_OVERFLOW) != 0) ++lost;
      if (meta->fd < 0) continue;
      UniqueFd fd(meta->fd);
      FanotifyEvent event = EventOfMask(meta->mask);
      event.pid = meta->pid;
      event.path = PathOfDescriptor(fd.get());
      event.fd = fd.get();
      const bool allow = on_event(event);
      if (event.asks_open || event.asks_exec) Answer(fd.get(), allow);
      if (answered) answered(event);
    }
  }
}

void FanotifyGroup::ForgetIgnored() {
  fanotify_mark(group_.get(), FAN_MARK_FLUSH, 0, AT_FDCWD, nullptr);  // leaves the marks of mounts
}

void FanotifyGroup::IgnoreOpens(int fd, bool directory) {
  const uint64_t event = asks() ? FAN_OPEN_PERM : FAN_OPEN;
  if (directory) {
    fanotify_mark(group_.get(), FAN_MARK_ADD | FAN_MARK_IGNORE_SURV | FAN_MARK_EVICTABLE, event | FAN_ONDIR,
                  fd, nullptr);
    return;
  }
  constexpr unsigned kFlags = FAN_MARK_ADD | FAN_MARK_IGNORED_MASK;
  if (fanotify_mark(group_.get(), kFlags | FAN_MARK_EVICTABLE, event, fd, nullptr) == 0) return;
  // An older kernel, or no marks left: then its opens go on raising events.
  if (errno == EINVAL) fanotify_mark(group_.get(), kFlags, event, fd, nullptr);
}

}  // namespace agentmon
