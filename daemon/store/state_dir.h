// The directory that holds the database: 0700, ours, and nothing in it is trusted to be what its name
// says. May block on the disk.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/unique_fd.h"

namespace agentmon {

class StateDir {
 public:
  // Makes the directory when it is missing (its parent must exist). A mode that is too wide is narrowed;
  // a directory of another user, a symbolic link or a file in its place is refused.
  static absl::StatusOr<StateDir> Open(const std::string& path);

  const std::string& path() const { return path_; }  // without symbolic links
  std::string database_path() const;
  int fd() const { return fd_.get(); }

  // Makes the database's names safe to be opened by path: whatever is no plain file with one link is set
  // aside, as are a log that is none and a log without a database; owner and mode are put right. Returns
  // what was done in one line, empty when nothing was.
  absl::StatusOr<std::string> PrepareDatabase(absl::Time now) const;
  // Renames database, log and shared memory to agentmon.db.corrupt-TIME[-wal|-shm] and returns the first
  // of these names. Nothing is ever deleted or overwritten.
  absl::StatusOr<std::string> SetAside(absl::Time now) const;

  uint64_t DatabaseBytes() const;  // database and write-ahead log, 0 when there is none
  uint64_t LogBytes() const;
  // (device, inode) of the database, zeros when there is none.
  std::pair<uint64_t, uint64_t> DatabaseInode() const;

 private:
  StateDir(std::string path, UniqueFd fd) : path_(std::move(path)), fd_(std::move(fd)) {}

  absl::StatusOr<bool> IsPlain(const std::string& name) const;
  std::string NotOurs(const std::string& name) const;
  absl::StatusOr<bool> CloseToOthers(const std::string& name) const;
  absl::StatusOr<bool> LogIsGarbage() const;
  absl::StatusOr<std::string> SetLogAside(absl::Time now) const;
  absl::Status Rename(const char* from, const std::string& to) const;
  std::string FreeAsideName(absl::Time now) const;
  uint64_t Size(const char* name) const;

  std::string path_;
  UniqueFd fd_;
};

// One daemon per state directory: a lock on DIR/lock, which names its holder. The lock goes with the
// object, or with the last process that inherited it over fork: take it after the holder was forked.
class StateLock {
 public:
  // FailedPrecondition, saying who holds it, when another daemon does.
  static absl::StatusOr<StateLock> Acquire(const std::string& dir);

 private:
  explicit StateLock(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

}  // namespace agentmon
