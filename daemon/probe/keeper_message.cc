#include "daemon/probe/keeper_message.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "daemon/probe/passed_bytes.h"

namespace agentmon {

absl::Status SendKeeperMessage(int socket, const KeeperHead& head, absl::string_view text, int fd,
                               int flags) {
  const std::string bytes =
      absl::StrCat(absl::string_view(reinterpret_cast<const char*>(&head), sizeof(head)), text);
  if (SendBytes(socket, bytes, fd, flags)) return absl::OkStatus();
  return ErrnoStatus(errno, "send to the other side");
}

absl::StatusOr<KeeperMessage> ReceiveKeeperMessage(int socket, int flags) {
  ASSIGN_OR_RETURN(PassedBytes bytes, ReceiveBytes(socket, flags));
  KeeperMessage received;
  if (bytes.bytes.size() >= sizeof(received.head))
    std::memcpy(&received.head, bytes.bytes.data(), sizeof(received.head));
  else
    received.head.magic = 0;
  if (received.head.magic != kKeeperMagic || received.head.version != kKeeperVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("the other side speaks another version than ", kKeeperVersion));
  }
  received.text = bytes.bytes.substr(sizeof(received.head));
  received.fd = std::move(bytes.fd);
  return received;
}

}  // namespace agentmon
