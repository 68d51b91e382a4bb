// Is a directory root's alone? Names of commands count only in such directories.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "common/base/clock.h"

namespace agentmon {

// Core thread. Looks only at what the kernel has in its caches (RESOLVE_CACHED, Linux 5.12), so that a
// network file system cannot make it wait; what is not there counts by its name, as UsuallyTrusted does.
class TrustedDirectories {
 public:
  explicit TrustedDirectories(const Clock& clock) : clock_(clock) {}

  // Root owns it and all above it, and none of them can be written by others, nor by `groups`, nor by way
  // of an access control list.
  bool Trusts(absl::string_view directory, const std::vector<gid_t>& groups);

 private:
  struct Facts {
    bool known = false;
    bool roots_alone = false;  // but for writing_groups
    std::vector<gid_t> writing_groups;
    int64_t until_ns = 0;
  };
  static Facts LookAt(const std::string& directory);

  const Clock& clock_;
  absl::flat_hash_map<std::string, Facts> facts_;
};

}  // namespace agentmon
