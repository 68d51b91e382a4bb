// One message of a SOCK_SEQPACKET socket between processes of this program: bytes, and at most one
// descriptor.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/unique_fd.h"

namespace agentmon {

struct PassedBytes {
  std::string bytes;
  UniqueFd fd;  // when one came with it
};

inline constexpr size_t kPassedBytesMost = 16 << 10;

// False, with errno, when it was not sent.
bool SendBytes(int socket, absl::string_view bytes, int fd = -1, int flags = 0);
// Unavailable when the other side is gone; DeadlineExceeded when nothing came in the time that the socket or
// MSG_DONTWAIT allows.
absl::StatusOr<PassedBytes> ReceiveBytes(int socket, int flags = 0);

}  // namespace agentmon
