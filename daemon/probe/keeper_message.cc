#include "daemon/probe/keeper_message.h"

#include <limits.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace agentmon {
namespace {

// Room for one descriptor.
struct Rights {
  alignas(cmsghdr) char bytes[CMSG_SPACE(sizeof(int))] = {};
};

}  // namespace

absl::Status SendKeeperMessage(int socket, const KeeperHead& head, absl::string_view text, int fd,
                               int flags) {
  iovec parts[] = {{const_cast<KeeperHead*>(&head), sizeof(head)},
                   {const_cast<char*>(text.data()), text.size()}};
  Rights rights;
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = 2;
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
    if (errno != EINTR) return ErrnoStatus(errno, "send to the other side");
  }
  return absl::OkStatus();
}

absl::StatusOr<KeeperMessage> ReceiveKeeperMessage(int socket, int flags) {
  KeeperMessage received;
  received.text.resize(PATH_MAX);
  iovec parts[] = {{&received.head, sizeof(received.head)}, {received.text.data(), received.text.size()}};
  Rights rights;
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = 2;
  message.msg_control = rights.bytes;
  message.msg_controllen = sizeof(rights.bytes);
  ssize_t n;
  do {
    n = recvmsg(socket, &message, MSG_CMSG_CLOEXEC | flags);
  } while (n < 0 && errno == EINTR);
  if (n == 0 || (n < 0 && errno == ECONNRESET)) return absl::UnavailableError("the other side is gone");
  if (n < 0) return ErrnoStatus(errno, "receive from the other side");
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (header != nullptr && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS) {
    int fd;
    std::memcpy(&fd, CMSG_DATA(header), sizeof(fd));
    received.fd = UniqueFd(fd);
  }
  const auto size = static_cast<size_t>(n);
  if (size < sizeof(received.head) || received.head.magic != kKeeperMagic ||
      received.head.version != kKeeperVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("the other side speaks another version than ", kKeeperVersion));
  }
  received.text.resize(size - sizeof(received.head));
  return received;
}

}  // namespace agentmon
