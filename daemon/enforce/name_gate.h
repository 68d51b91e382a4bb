// What the resolver of sessions tells the kernel's network rules, and asks of them: which address stands for
// which name, where questions to port 53 are led, and whose a redirected socket is.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/policy/address.h"

namespace agentmon {

// Where datagrams and connections to port 53 go in place of the server that the program named. Both families
// are needed: an IPv6 socket cannot be led to an IPv4 address for datagrams (Linux refuses it). Port 0 = this
// family is not redirected.
struct ResolverTarget {
  policy::Address v4, v6;
  uint16_t v4_port = 0, v6_port = 0;  // host order
};

// A socket whose connect or datagram was led to the resolver.
struct RedirectedSocket {
  uint64_t cgroup_id = 0;  // of the session
  policy::Address server;  // that the program named last
  uint16_t port = 0;
  uint32_t pid = 0;  // thread-group id of the process that named it
};

// Any thread; no call but Settle waits for longer than some system calls on maps take. Sessions are named by
// the id of their cgroup, as records do. A session that the kernel does not judge is NotFound.
class NameGate {
 public:
  virtual ~NameGate() = default;

  // From now on until `expires_boot_ns` (CLOCK_BOOTTIME) what the session's rules say of `name` counts for
  // `address` as well; afterwards the address alone counts again. Call it before the answer that holds the
  // address goes out, once for each name of a chain that a rule may speak of. The same name again moves the
  // end, never to an earlier time. Follows a switch of the policy by itself.
  // ResourceExhausted: no room; the answer must not go out then.
  virtual absl::Status OpenAddress(uint64_t cgroup_id, absl::string_view name, const policy::Address& address,
                                   int64_t expires_boot_ns) = 0;
  // Returns when what was opened holds for packets, too (NetworkBackstop); waits 100 ms at most.
  virtual void Settle(uint64_t cgroup_id) = 0;
  // Takes back what a name opened, for all of its addresses.
  virtual void CloseName(uint64_t cgroup_id, absl::string_view name) = 0;

  // Port 53 of the session is led there from now on, and is not judged by address any more. An empty target
  // ends it.
  virtual absl::Status SetResolver(uint64_t cgroup_id, const ResolverTarget& target) = 0;
  // By the socket's cookie (of sock_diag, for the peer of a query or connection). NotFound: this socket was
  // not redirected, so nobody has a right to an answer.
  virtual absl::StatusOr<RedirectedSocket> FindRedirected(uint64_t cookie) const = 0;
};

}  // namespace agentmon
