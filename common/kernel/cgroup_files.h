// Control files of one directory of the cgroup v2 hierarchy (Documentation/admin-guide/cgroup-v2.rst), by
// path: any directory does in tests.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace agentmon {

// Any thread; no state but the path. A write of memory.max below what is in use waits for the kernel's
// reclaim.
class CgroupFiles {
 public:
  explicit CgroupFiles(std::string directory) : directory_(std::move(directory)) {}

  absl::StatusOr<std::string> Read(absl::string_view name) const;
  // One write(2) of the whole value, as the kernel wants it.
  absl::Status Write(absl::string_view name, absl::string_view value) const;
  // The word stands in the file, between blanks: a controller in cgroup.controllers.
  bool HasWord(absl::string_view name, absl::string_view word) const;
  const std::string& directory() const { return directory_; }

  // Of "key value" lines; 0 when there is none.
  static uint64_t Field(absl::string_view text, absl::string_view key);

 private:
  std::string directory_;
};

}  // namespace agentmon
