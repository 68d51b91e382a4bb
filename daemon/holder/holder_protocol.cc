#include "daemon/holder/holder_protocol.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace agentmon {

absl::Status SendHolderMessage(int socket, const HolderMessage& message, int fd, int flags) {
  iovec data{const_cast<HolderMessage*>(&message), sizeof(message)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr header{};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  if (fd >= 0) {
    header.msg_control = control;
    header.msg_controllen = sizeof(control);
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(rights), &fd, sizeof(fd));
  }
  while (sendmsg(socket, &header, MSG_NOSIGNAL | flags) < 0) {
    if (errno != EINTR) return ErrnoStatus(errno, "send to the other side");
  }
  return absl::OkStatus();
}

absl::StatusOr<ReceivedMessage> ReceiveHolderMessage(int socket) {
  ReceivedMessage received;
  iovec data{&received.message, sizeof(received.message)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr header{};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof(control);
  ssize_t n;
  do {
    n = recvmsg(socket, &header, MSG_CMSG_CLOEXEC);
  } while (n < 0 && errno == EINTR);
  if (n == 0 || (n < 0 && errno == ECONNRESET)) return absl::UnavailableError("the other side is gone");
  if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
    return absl::DeadlineExceededError("the other side does not answer");
  if (n < 0) return ErrnoStatus(errno, "receive from the other side");
  const cmsghdr* rights = CMSG_FIRSTHDR(&header);
  if (rights != nullptr && rights->cmsg_level == SOL_SOCKET && rights->cmsg_type == SCM_RIGHTS) {
    int fd;
    std::memcpy(&fd, CMSG_DATA(rights), sizeof(fd));
    received.fd = UniqueFd(fd);
  }
  if (n != sizeof(received.message) || received.message.magic != kHolderMagic ||
      received.message.version != kHolderVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("the other side speaks another version than ", kHolderVersion));
  }
  return received;
}

}  // namespace agentmon
