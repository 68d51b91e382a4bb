// Names that a waiting caller gave to the kernel, looked up as the kernel would for it: in its root, from its
// directory, and held by descriptor from then on.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "common/base/unique_fd.h"

namespace agentmon {

// A name as a system call got it.
struct CallerName {
  int dirfd = -100;  // AT_FDCWD, or a descriptor of the caller; does not count for absolute names
  std::string name;  // empty: the descriptor itself
};

// Where a name is looked up from. Opening it needs the daemon's own rights, the look-up those of the caller.
struct CallerBase {
  int error = 0;     // errno for the caller; then nothing else counts
  UniqueFd start;    // O_PATH: the root, the current directory, or what a descriptor means
  UniqueFd root;     // of the caller
  std::string name;  // what is left to look up from start; never absolute. Empty: start is the object itself
  bool from_root = false;

  // A root that is not the mount namespace's: chroot(2).
  bool HasRootOfItsOwn() const;

 private:
  mutable std::optional<bool> root_of_its_own_;
};

// "/proc/self/fd/N", "/dev/fd/N" and the like name descriptors of the caller; start is what they mean.
CallerBase OpenCallerBase(pid_t tid, pid_t tgid, const CallerName& name);

// The directory of the last component, and that component.
struct FoundPlace {
  int error = 0;
  UniqueFd directory;  // O_PATH
  std::string leaf;    // as given, slashes at its end included; empty: the name is a root
  std::string path;    // of directory and leaf; links are followed in all but the leaf
};
FoundPlace FindPlace(const CallerBase& base);

// The object.
struct FoundObject {
  int error = 0;     // ENOENT: FindPlace says where it would be
  UniqueFd fd;       // O_PATH
  std::string path;  // without " (deleted)"; "pipe:[7]" and the like for what has no name
  struct stat st {};
};
// follow: also through a link that is the last component.
FoundObject FindObject(const CallerBase& base, bool follow);

// The path of a descriptor of this thread, without " (deleted)"; empty = cannot be read.
std::string PathOfDescriptor(int fd);

}  // namespace agentmon
