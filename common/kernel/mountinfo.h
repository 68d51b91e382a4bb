// /proc/PID/mountinfo, parsed (proc(5)).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace agentmon {

struct Mount {
  int id = 0;
  int parent_id = 0;
  std::string device;       // "8:1"; "0:N" where no block device is directly behind it
  std::string root;         // of the mount within its file system, octal escapes resolved
  std::string mount_point;  // in the root of the process, octal escapes resolved
  std::string options;
  std::string fs_type;
  std::string source;
  std::string super_options;  // of the file system, escapes as they are
};

// True for file systems that ask a server (FUSE, NFS, CIFS): who opens a file there, or looks one up, may
// hang.
bool IsServedFileSystem(absl::string_view fs_type);

// Lines that do not parse are left out.
std::vector<Mount> ParseMountinfo(absl::string_view text);
absl::StatusOr<std::vector<Mount>> ReadMountinfo(const std::string& path);

}  // namespace agentmon
