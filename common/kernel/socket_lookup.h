// Which socket is at the other end of a path on this host.
#pragma once

#include <sys/socket.h>

#include <cstdint>

#include "absl/status/statusor.h"
#include "common/base/unique_fd.h"

namespace agentmon {

// Asks sock_diag (sock_diag(7)) in our network namespace. One thread; a look-up takes some microseconds and
// waits for nobody.
class SocketLookup {
 public:
  struct Found {
    uint64_t cookie = 0;  // SO_COOKIE, and bpf_get_socket_cookie()
    uint32_t uid = 0;     // whose it is
    uint32_t inode = 0;   // "socket:[inode]" in /proc/PID/fd
  };

  static absl::StatusOr<SocketLookup> Create();

  // The socket that a packet from `local` to `remote` reaches: the peer of a connection, or who would receive
  // a datagram. NotFound: none, or it is gone.
  absl::StatusOr<Found> Find(int protocol, const sockaddr_storage& local, const sockaddr_storage& remote);

 private:
  explicit SocketLookup(UniqueFd fd) : fd_(std::move(fd)) {}

  UniqueFd fd_;
  uint32_t sequence_ = 0;
};

}  // namespace agentmon
