// An AM_FILE record of bpf/event_abi.h, made in user space.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "agentmon/v1/event.pb.h"

namespace agentmon {

struct FileRecord {
  v1::Source source = v1::SOURCE_UNSPECIFIED;
  v1::EventKind kind = v1::EVENT_KIND_UNSPECIFIED;
  uint32_t flags = 0;  // AM_F_*
  int64_t boot_ns = 0;
  uint64_t cgroup_id = 0;
  uint32_t pid = 0;  // thread-group id
  uint32_t tid = 0;
  uint32_t caller_uid = 0;
  uint32_t open_flags = 0;
  uint32_t mode = 0;
  int32_t uid = -1;  // chown
  int32_t gid = -1;
  uint64_t size = 0;
  std::string path;
  std::string new_path;
};

// Of paths longer than AM_PATH_MAX the innermost part is kept, and AM_F_PATH_CUT is set.
std::vector<uint8_t> EncodeFileRecord(const FileRecord& record);

}  // namespace agentmon
