#include "daemon/store/state_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/log.h"
#include "common/base/status.h"

namespace agentmon {
namespace {

constexpr char kDatabase[] = "agentmon.db";
constexpr char kLog[] = "agentmon.db-wal";
constexpr char kShared[] = "agentmon.db-shm";
constexpr char kLock[] = "lock";

absl::StatusOr<std::string> WithoutLinks(int fd) {
  char buffer[PATH_MAX];
  const std::string link = absl::StrCat("/proc/self/fd/", fd);
  const ssize_t n = ::readlink(link.c_str(), buffer, sizeof(buffer));
  if (n < 0 || static_cast<size_t>(n) == sizeof(buffer))
    return ErrnoStatus(errno, absl::StrCat("read ", link));
  return std::string(buffer, n);
}

uint32_t BigEndian(const unsigned char* at) {
  return uint32_t{at[0]} << 24 | uint32_t{at[1]} << 16 | uint32_t{at[2]} << 8 | uint32_t{at[3]};
}

uint32_t LittleEndian(const unsigned char* at) {
  return uint32_t{at[3]} << 24 | uint32_t{at[2]} << 16 | uint32_t{at[1]} << 8 | uint32_t{at[0]};
}

// sqlite.org/fileformat2.html#walformat: magic, version 3007000, and a checksum over the first 24 bytes
// in the byte order that the magic tells.
bool IsLogHeader(const unsigned char (&header)[32]) {
  const uint32_t magic = BigEndian(header);
  if ((magic & ~1u) != 0x377f0682 || BigEndian(header + 4) != 3007000) return false;
  const auto word = magic & 1 ? BigEndian : LittleEndian;
  uint32_t s0 = 0, s1 = 0;
  for (int at = 0; at < 24; at += 8) {
    s0 += word(header + at) + s1;
    s1 += word(header + at + 4) + s0;
  }
  return s0 == BigEndian(header + 24) && s1 == BigEndian(header + 28);
}

}  // namespace

absl::StatusOr<StateDir> StateDir::Open(const std::string& path) {
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST && errno != EROFS) {
    return ErrnoStatus(errno, absl::StrCat("make state directory ", path));
  }
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!fd.valid()) return ErrnoStatus(errno, absl::StrCat("open state directory ", path));
  struct stat st;
  if (::fstat(fd.get(), &st) != 0) return ErrnoStatus(errno, absl::StrCat("stat ", path));
  if (st.st_uid != ::geteuid()) {
    return absl::PermissionDeniedError(absl::StrCat("state directory ", path, " belongs to uid ", st.st_uid,
                                                    ", not to uid ", ::geteuid(),
                                                    ": chown it or use another"));
  }
  if ((st.st_mode & 077) != 0) {
    if (::fchmod(fd.get(), 0700) != 0) return ErrnoStatus(errno, absl::StrCat("chmod 0700 ", path));
    LogWarning("state directory ", path, " was open to others; its mode is 0700 now");
  }
  ASSIGN_OR_RETURN(std::string canonical, WithoutLinks(fd.get()));
  return StateDir(std::move(canonical), std::move(fd));
}

std::string StateDir::database_path() const { return absl::StrCat(path_, "/", kDatabase); }

uint64_t StateDir::Size(const char* name) const {
  struct stat st;
  return ::fstatat(fd_.get(), name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) ? st.st_size : 0;
}

uint64_t StateDir::DatabaseBytes() const { return Size(kDatabase) + Size(kLog); }
uint64_t StateDir::LogBytes() const { return Size(kLog); }

std::pair<uint64_t, uint64_t> StateDir::DatabaseInode() const {
  struct stat st;
  if (::fstatat(fd_.get(), kDatabase, &st, AT_SYMLINK_NOFOLLOW) != 0) return {0, 0};
  return {st.st_dev, st.st_ino};
}

// A second link may lead to a file that somebody else reads, or wants to be overwritten.
absl::StatusOr<bool> StateDir::IsPlain(const std::string& name) const {
  struct stat st;
  if (::fstatat(fd_.get(), name.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0) {
    if (errno == ENOENT) return true;
    return ErrnoStatus(errno, absl::StrCat("stat ", name));
  }
  return S_ISREG(st.st_mode) && st.st_nlink == 1;
}

// Nothing that we have written is like that. Empty: it is as it should be.
std::string StateDir::NotOurs(const std::string& name) const {
  struct stat st;
  if (::fstatat(fd_.get(), name.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0) return "";
  if (st.st_uid != ::geteuid()) return absl::StrCat(name, " belonged to uid ", st.st_uid);
  if ((st.st_mode & 0600) == 0600) return "";
  return absl::StrFormat("%s had mode %04o, so that its owner could not read and write it", name,
                         st.st_mode & 07777);
}

absl::StatusOr<bool> StateDir::CloseToOthers(const std::string& name) const {
  struct stat st;
  if (::fstatat(fd_.get(), name.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0) return false;
  if ((st.st_mode & 07777) == 0600) return false;
  // Nobody else can replace the name between the check and this: the directory is 0700 and ours.
  if (::fchmodat(fd_.get(), name.c_str(), 0600, 0) != 0)
    return ErrnoStatus(errno, absl::StrCat("chmod 0600 ", name));
  return true;
}

// A log that SQLite does not take for one it would overwrite. One with a good header and torn frames
// is the usual trace of a crash.
absl::StatusOr<bool> StateDir::LogIsGarbage() const {
  UniqueFd fd(::openat(fd_.get(), kLog, O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  if (!fd.valid()) {
    if (errno == ENOENT) return false;
    return ErrnoStatus(errno, absl::StrCat("open ", kLog));
  }
  unsigned char header[32] = {};
  const ssize_t n = ::pread(fd.get(), header, sizeof(header), 0);
  if (n < 0) return ErrnoStatus(errno, absl::StrCat("read ", kLog));
  static constexpr unsigned char kZeros[32] = {};
  if (static_cast<size_t>(n) < sizeof(header) || std::memcmp(header, kZeros, sizeof(header)) == 0)
    return false;
  return !IsLogHeader(header);
}

absl::StatusOr<std::string> StateDir::PrepareDatabase(absl::Time now) const {
  std::string done;
  for (const char* name : {kDatabase, kLog, kShared}) {
    ASSIGN_OR_RETURN(const bool plain, IsPlain(name));
    const std::string trouble = plain ? NotOurs(name) : absl::StrCat(name, " was no plain file");
    if (trouble.empty()) continue;
    ASSIGN_OR_RETURN(const std::string aside, SetAside(now));
    done = absl::StrCat(trouble, "; set aside as ", aside);
    break;
  }
  bool fixed = false;
  for (const char* name : {kDatabase, kLog, kShared}) {
    ASSIGN_OR_RETURN(const bool changed, CloseToOthers(name));
    fixed |= changed;
  }
  if (fixed) LogWarning(database_path(), " was open to others; its mode is 0600 now");
  ASSIGN_OR_RETURN(const bool garbage, LogIsGarbage());
  // SQLite deletes the log of an empty database.
  if (garbage || (Size(kDatabase) == 0 && Size(kLog) > 0)) {
    ASSIGN_OR_RETURN(const std::string aside, SetLogAside(now));
    done = absl::StrCat(kLog, garbage ? " was no write-ahead log" : " had no database", "; set aside as ",
                        aside);
  }
  // SQLite would make it readable for all, and gives its mode to log and shared memory. Only a new one is
  // opened: the end of any descriptor of a file ends all the locks that this process has on it
  // (fcntl_locking(2)), those of the readers' connections too.
  const UniqueFd fd(::openat(fd_.get(), kDatabase, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!fd.valid() && errno != EEXIST) return ErrnoStatus(errno, absl::StrCat("open ", database_path()));
  return done;
}

std::string StateDir::FreeAsideName(absl::Time now) const {
  const std::string base =
      absl::StrCat(kDatabase, ".corrupt-", absl::FormatTime("%Y%m%dT%H%M%SZ", now, absl::UTCTimeZone()));
  std::string name = base;
  for (int n = 2; n < 1000; ++n) {
    bool free = true;
    struct stat st;
    for (const char* suffix : {"", "-wal", "-shm"}) {
      free &= ::fstatat(fd_.get(), absl::StrCat(name, suffix).c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0;
    }
    if (free) break;
    name = absl::StrCat(base, "-", n);
  }
  return name;
}

absl::Status StateDir::Rename(const char* from, const std::string& to) const {
  if (::renameat2(fd_.get(), from, fd_.get(), to.c_str(), RENAME_NOREPLACE) == 0) return absl::OkStatus();
  // Not every file system has the flag; the name was free a moment ago and the directory is ours alone.
  if (errno == EINVAL && ::renameat(fd_.get(), from, fd_.get(), to.c_str()) == 0) return absl::OkStatus();
  return ErrnoStatus(errno, absl::StrCat("rename ", from, " to ", to));
}

absl::StatusOr<std::string> StateDir::SetAside(absl::Time now) const {
  const std::string aside = FreeAsideName(now);
  const std::pair<const char*, const char*> names[] = {{kDatabase, ""}, {kLog, "-wal"}, {kShared, "-shm"}};
  for (const auto& [from, suffix] : names) {
    const absl::Status status = Rename(from, absl::StrCat(aside, suffix));
    if (!status.ok() && !absl::IsNotFound(status)) return status;
  }
  return aside;
}

absl::StatusOr<std::string> StateDir::SetLogAside(absl::Time now) const {
  const std::string to = absl::StrCat(FreeAsideName(now), "-wal");
  RETURN_IF_ERROR(Rename(kLog, to));
  return to;
}

absl::StatusOr<StateLock> StateLock::Acquire(const std::string& dir) {
  ASSIGN_OR_RETURN(const StateDir state, StateDir::Open(dir));
  UniqueFd fd(::openat(state.fd(), kLock, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600));
  if (!fd.valid() && (errno == EROFS || errno == ENOSPC || errno == EDQUOT)) {
    // Nothing can be written there, but a second daemon must still be kept out.
    fd.Reset(::openat(state.fd(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  }
  if (!fd.valid()) return ErrnoStatus(errno, absl::StrCat("open ", state.path(), "/", kLock));
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return ErrnoStatus(errno, absl::StrCat("lock ", state.path(), "/", kLock));
    char holder[128];
    const ssize_t n = ::pread(fd.get(), holder, sizeof(holder), 0);
    absl::string_view who(holder, n > 0 ? n : 0);
    who = who.substr(0, who.find('\n'));
    return absl::FailedPreconditionError(absl::StrCat("another agentmond (", who.empty() ? "unknown" : who,
                                                      ") uses the state directory ", state.path()));
  }
  const std::string since = absl::FormatTime(absl::RFC3339_sec, absl::Now(), absl::UTCTimeZone());
  const std::string holder = absl::StrCat("pid ", ::getpid(), " since ", since, "\n");
  // Only for the refusal's text: the lock holds without it.
  if (::ftruncate(fd.get(), 0) != 0 || ::pwrite(fd.get(), holder.data(), holder.size(), 0) < 0) {
    LogWarning("cannot write ", state.path(), "/", kLock);
  }
  return StateLock(std::move(fd));
}

}  // namespace agentmon
