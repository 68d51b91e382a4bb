#include "common/kernel/sock_diag.h"

#include <linux/netlink.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <cerrno>

#include "common/base/status.h"

namespace agentmon {

absl::StatusOr<UniqueFd> OpenSockDiag() {
  UniqueFd fd(::socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
  if (!fd.valid()) return ErrnoStatus(errno, "open sock_diag");
  const timeval patience{0, 200'000};
  if (::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)) != 0)
    return ErrnoStatus(errno, "set up sock_diag");
  return fd;
}

}  // namespace agentmon
