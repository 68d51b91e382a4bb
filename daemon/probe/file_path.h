// Names that a program gave to the kernel, made absolute.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "daemon/enforce/caller_lookup.h"

namespace agentmon {

// A name as a system call got it, taken while the call waited.
struct AskedName {
  std::string
      base;  // path of the directory that a relative name starts from; empty when the name is absolute
  std::string name;  // empty: base is the object itself
};

// "a//b/./c/../d" -> "a/b/d", without looking at the file system; what goes above the start is dropped.
std::string NormalizePath(absl::string_view path);

// Base and name joined, normalized.
std::string JoinName(const AskedName& asked);

// What the caller asked for, made absolute; links are not followed.
std::string AskedPath(const CallerBase& base);

// Resolves the directory part of names in the root of the process that gave them. The last component stays as
// it was given, also where it is a symbolic link. One thread's own. May wait for a file system. What cannot
// be resolved, for example because the process is gone, stays as it was written. Needs openat2 (Linux 5.6).
class PathResolver {
 public:
  std::string Resolve(pid_t tid, pid_t tgid, const AskedName& asked, int64_t now_ns);
  // After a rename or symlink, which may have changed where known names lead.
  void Forget() { directories_.clear(); }

 private:
  std::string Directory(pid_t tid, pid_t tgid, const AskedName& asked, absl::string_view name_directory,
                        int64_t now_ns);

  struct Known {
    std::string path;
    int64_t until_ns = 0;
  };
  absl::flat_hash_map<std::pair<pid_t, std::string>, Known> directories_;
};

}  // namespace agentmon
