#include "daemon/holder/holder_protocol.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "daemon/probe/passed_bytes.h"

namespace agentmon {

absl::Status SendHolderMessage(int socket, const HolderMessage& message, int fd, int flags) {
  const absl::string_view bytes(reinterpret_cast<const char*>(&message), sizeof(message));
  if (SendBytes(socket, bytes, fd, flags)) return absl::OkStatus();
  return ErrnoStatus(errno, "send to the other side");
}

absl::StatusOr<ReceivedMessage> ReceiveHolderMessage(int socket) {
  ASSIGN_OR_RETURN(PassedBytes bytes, ReceiveBytes(socket));
  ReceivedMessage received;
  if (bytes.bytes.size() == sizeof(received.message))
    std::memcpy(&received.message, bytes.bytes.data(), sizeof(received.message));
  else
    received.message.magic = 0;
  if (received.message.magic != kHolderMagic || received.message.version != kHolderVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("the other side speaks another version than ", kHolderVersion));
  }
  received.fd = std::move(bytes.fd);
  return received;
}

}  // namespace agentmon
