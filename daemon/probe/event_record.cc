#include "daemon/probe/event_record.h"

#include <cstring>
#include <string>

#include "bpf/event_abi.h"

namespace agentmon {

std::vector<uint8_t> EncodeEventRecord(const EventOrigin& origin, const Event& event) {
  const std::string body = event.SerializeAsString();
  am_header header{};
  header.type = AM_EVENT;
  header.source = static_cast<uint16_t>(origin.source);
  header.size = static_cast<uint32_t>(sizeof(header) + body.size());
  header.uid = origin.uid;
  header.flags = origin.flags;
  header.boot_ns = static_cast<uint64_t>(origin.boot_ns);
  header.cgroup_id = origin.cgroup_id;
  header.start_ns = origin.start_ns;
  header.pid = origin.pid;
  header.tid = origin.tid;
  std::vector<uint8_t> bytes(header.size);
  std::memcpy(bytes.data(), &header, sizeof(header));
  std::memcpy(bytes.data() + sizeof(header), body.data(), body.size());
  return bytes;
}

}  // namespace agentmon
