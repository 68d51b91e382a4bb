#include "daemon/probe/file_record.h"

#include <cstring>

#include "absl/strings/string_view.h"
#include "bpf/event_abi.h"

namespace agentmon {
namespace {

absl::string_view Innermost(const std::string& path, uint32_t* flags) {
  absl::string_view kept = path;
  if (kept.size() <= AM_PATH_MAX) return kept;
  *flags |= AM_F_PATH_CUT;
  return kept.substr(kept.size() - AM_PATH_MAX);
}

}  // namespace

std::vector<uint8_t> EncodeFileRecord(const FileRecord& record) {
  am_file file{};
  uint32_t flags = record.flags;
  const absl::string_view path = Innermost(record.path, &flags);
  const absl::string_view new_path = Innermost(record.new_path, &flags);
  file.h.type = AM_FILE;
  file.h.source = static_cast<uint16_t>(record.source);
  file.h.size = static_cast<uint32_t>(sizeof(file) + path.size() + new_path.size());
  file.h.flags = flags;
  file.h.uid = record.caller_uid;
  file.h.boot_ns = static_cast<uint64_t>(record.boot_ns);
  file.h.cgroup_id = record.cgroup_id;
  file.h.pid = record.pid;
  file.h.tid = record.tid;
  file.kind = record.kind;
  file.open_flags = record.open_flags;
  file.mode = record.mode;
  file.uid = record.uid;
  file.gid = record.gid;
  file.path_len = static_cast<uint32_t>(path.size());
  file.size = record.size;
  file.new_path_len = static_cast<uint32_t>(new_path.size());

  std::vector<uint8_t> bytes(file.h.size);
  std::memcpy(bytes.data(), &file, sizeof(file));
  if (!path.empty()) std::memcpy(bytes.data() + sizeof(file), path.data(), path.size());
  if (!new_path.empty())
    std::memcpy(bytes.data() + sizeof(file) + path.size(), new_path.data(), new_path.size());
  return bytes;
}

}  // namespace agentmon
