#include "daemon/probe/unix_call.h"

#include <linux/audit.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "common/kernel/call_numbers.h"
#include "daemon/probe/caller.h"

namespace agentmon {
namespace {

constexpr uint64_t kMessagesMax = 1024;  // UIO_MAXIOV: sendmmsg(2) looks at no more
constexpr size_t kPathOffset = offsetof(sockaddr_un, sun_path);

// struct msghdr of the caller, as far as the name goes; and the stride of struct mmsghdr.
struct MessageLayout {
  bool wide;
  size_t stride;
};

MessageLayout LayoutOf(const seccomp_data& data) {
  const bool wide = (data.arch & __AUDIT_ARCH_64BIT) != 0 && (static_cast<uint32_t>(data.nr) & kX32Bit) == 0;
  return wide ? MessageLayout{true, 64} : MessageLayout{false, 32};
}

struct NameOfMessage {
  uint64_t address = 0;
  uint32_t length = 0;
};

bool ReadHead(pid_t tid, const MessageLayout& layout, uint64_t at, NameOfMessage* out) {
  if (layout.wide) {
    struct {
      uint64_t address;
      uint32_t length;
    } head;
    if (!ReadCallerBytes(tid, at, &head, 12)) return false;
    *out = {head.address, head.length};
  } else {
    uint32_t head[2];
    if (!ReadCallerBytes(tid, at, head, sizeof(head))) return false;
    *out = {head[0], head[1]};
  }
  return true;
}

// Lengths that the kernel refuses by itself name nothing.
bool ReadName(pid_t tid, const NameOfMessage& at, std::string* out) {
  sockaddr_un address;
  if (at.address == 0 || at.length <= kPathOffset || at.length > sizeof(address)) return false;
  // Most calls are about other families, and of these no more than that is read.
  sa_family_t family = 0;
  if (!ReadCallerBytes(tid, at.address, &family, sizeof(family)) || family != AF_UNIX) return false;
  if (!ReadCallerBytes(tid, at.address, &address, at.length)) return false;
  const size_t length = at.length - kPathOffset;
  if (address.sun_path[0] == '\0') {
    out->assign(address.sun_path, length);
  } else {
    out->assign(address.sun_path, strnlen(address.sun_path, length));
  }
  return true;
}

bool ReadMessages(pid_t tid, const MessageLayout& layout, uint64_t first, uint64_t count, UnixCall* out) {
  out->uses = 0;
  for (uint64_t i = 0; i < std::min(count, kMessagesMax); ++i) {
    NameOfMessage at;
    if (!ReadHead(tid, layout, first + i * layout.stride, &at)) break;
    std::string name;
    if (!ReadName(tid, at, &name)) continue;
    if (out->uses > 0 && name != out->name) {
      out->more = true;
      break;
    }
    out->name = std::move(name);
    ++out->uses;
  }
  return out->uses > 0;
}

}  // namespace

bool ReadUnixCall(const SocketCall& call, const seccomp_notif& request, UnixCall* out) {
  const auto tid = static_cast<pid_t>(request.pid);
  const auto argument = [&](int8_t position) { return request.data.args[position]; };
  const uint64_t address = argument(call.address);
  const MessageLayout layout = LayoutOf(request.data);
  *out = UnixCall();
  out->fd = static_cast<int>(argument(0));
  NameOfMessage at{address, 0};
  switch (call.act) {
    case SocketAct::kConnect:
    case SocketAct::kSendTo:
      at.length = static_cast<uint32_t>(argument(call.length));
      return ReadName(tid, at, &out->name);
    case SocketAct::kSendMessage:
      return ReadHead(tid, layout, address, &at) && ReadName(tid, at, &out->name);
    case SocketAct::kSendMessages:
      return ReadMessages(tid, layout, address, static_cast<uint32_t>(argument(call.length)), out);
  }
  return false;
}

}  // namespace agentmon
