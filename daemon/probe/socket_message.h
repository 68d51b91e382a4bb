// What a waiting caller wants to send, and where to: copied from its memory once, whole.
#pragma once

#include <linux/seccomp.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "common/kernel/socket_calls.h"

namespace agentmon {

struct SocketMessage {
  bool has_name = false;
  std::string name;     // of a socket address
  std::string payload;  // what of it is sent
  std::string control;  // of a caller whose words are as wide as ours
};

inline constexpr size_t kPayloadMost = 256 * 1024;

// Layout of struct msghdr and struct mmsghdr of the caller.
struct MessageLayout {
  bool wide;
  size_t stride;         // of mmsghdr
  size_t length_offset;  // of mmsghdr::msg_len
};
MessageLayout MessageLayoutOf(const seccomp_data& data);

// All of these: 0, or the errno that the kernel would answer. A stream takes a part of what is too long.
int ReadSocketName(pid_t tid, uint64_t address, int length, SocketMessage* out);
int ReadSendTo(const SocketCall& call, const seccomp_notif& request, bool stream, SocketMessage* out);
// at: of a msghdr. ENOTSUP: control data that only a caller like us can mean.
int ReadMessageAt(pid_t tid, const MessageLayout& layout, uint64_t at, bool stream, SocketMessage* out);

bool WriteCallerBytes(pid_t tid, uint64_t address, const void* from, size_t size);

}  // namespace agentmon
