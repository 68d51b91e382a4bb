// What the resolver needs of who leads port 53 to it and holds sessions to what was opened.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "common/policy/address.h"
#include "daemon/event/event.h"

namespace agentmon {

// Both ends of a socket that has reached a listener, as the listener sees them.
struct DnsPath {
  int protocol = 0;  // IPPROTO_UDP, IPPROTO_TCP
  sockaddr_storage client{}, listener{};
};

// Who asks, as it was recorded when the socket was led here.
struct DnsClient {
  uint32_t pid = 0, uid = 0;  // thread-group id; 0 = not known
  policy::Address server;     // that the program had named
  uint16_t server_port = 0;
};

// The resolver's thread calls; nothing here may wait but Settle.
class ResolverHost {
 public:
  virtual ~ResolverHost() = default;
  // Nullopt: this socket was not led to this session's listener. It is not served.
  virtual std::optional<DnsClient> Identify(uint64_t cgroup_id, const DnsPath& path) = 0;
  // The session may reach this address as `name` until then (CLOCK_BOOTTIME). What was opened before for the
  // same name and address is prolonged, never shortened. Holds when it returns.
  virtual absl::Status Open(uint64_t cgroup_id, const std::string& name, const policy::Address& address,
                            int64_t until_boot_ns) = 0;
  // After Open, before the answer goes out: see NameGate.
  virtual void Settle(uint64_t cgroup_id) = 0;
  // This host has the address.
  virtual bool IsOwn(const policy::Address& address) = 0;
  // An event of kind DNS, judged; without process, session and source.
  virtual void OnEvent(uint64_t cgroup_id, const DnsClient& client, int64_t boot_ns, const Event& event) = 0;
};

}  // namespace agentmon
