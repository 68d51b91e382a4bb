#include "daemon/probe/passed_bytes.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "common/base/status.h"

namespace agentmon {
namespace {

// Room for one descriptor.
struct Rights {
  alignas(cmsghdr) char bytes[CMSG_SPACE(sizeof(int))] = {};
};

}  // namespace

bool SendBytes(int socket, absl::string_view bytes, int fd, int flags) {
  iovec part{const_cast<char*>(bytes.data()), bytes.size()};
  Rights rights;
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (fd >= 0) {
    message.msg_control = rights.bytes;
    message.msg_controllen = sizeof(rights.bytes);
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &fd, sizeof(fd));
  }
  while (sendmsg(socket, &message, MSG_NOSIGNAL | flags) < 0) {
    if (errno != EINTR) return false;
  }
  return true;
}

absl::StatusOr<PassedBytes> ReceiveBytes(int socket, int flags) {
  PassedBytes received;
  received.bytes.resize(kPassedBytesMost);
  iovec part{received.bytes.data(), received.bytes.size()};
  Rights rights;
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = rights.bytes;
  message.msg_controllen = sizeof(rights.bytes);
  ssize_t n;
  do {
    n = recvmsg(socket, &message, MSG_CMSG_CLOEXEC | flags);
  } while (n < 0 && errno == EINTR);
  if (n == 0 || (n < 0 && errno == ECONNRESET)) return absl::UnavailableError("the other side is gone");
  if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
    return absl::DeadlineExceededError("the other side does not answer");
  if (n < 0) return ErrnoStatus(errno, "receive from the other side");
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (header != nullptr && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS) {
    int fd;
    std::memcpy(&fd, CMSG_DATA(header), sizeof(fd));
    received.fd = UniqueFd(fd);
  }
  received.bytes.resize(static_cast<size_t>(n));
  return received;
}

}  // namespace agentmon
