// Programs that a policy's rules on commands name, known again by their content under another name.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/policy/snapshot.h"

namespace agentmon {

// Immutable. Of rules that would stop or ask: programs by their path, and bare names in the usual directories
// of programs; patterns are not looked for. Files are looked up once, in the daemon's own mount namespace. A
// copy that was changed is another program: this stops a copy, not somebody who builds one.
class ProgramCopies {
 public:
  explicit ProgramCopies(const policy::Snapshot& snapshot);

  // The path of the named program that an open file is a copy of; empty when it is none, or a name of that
  // program itself. `st` is of `fd`, which is read only where the sizes are the same.
  std::string OriginalOf(int fd, const struct stat& st) const;
  // Whether anything of that size is known, here or among loaders: else neither needs the file's content.
  bool KnowsSize(off_t size) const { return by_size_.contains(size) || loaders_.contains(size); }
  // Whether an open file is one of this host's dynamic loaders, or a copy of one.
  bool IsLoader(int fd, const struct stat& st) const;

 private:
  struct Program {
    std::string path;
    dev_t device;
    ino_t inode;
  };
  using BySize = absl::flat_hash_map<off_t, std::vector<Program>>;
  void Add(const std::string& path);
  void AddLoaders();

  BySize by_size_, loaders_;
};

}  // namespace agentmon
