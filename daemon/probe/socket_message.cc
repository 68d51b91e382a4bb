#include "daemon/probe/socket_message.h"

#include <linux/audit.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <vector>

#include "common/kernel/call_numbers.h"
#include "daemon/probe/caller.h"

namespace agentmon {
namespace {

constexpr size_t kControlMost = 16 * 1024;

// struct msghdr of the caller, in one shape.
struct Head {
  uint64_t name = 0, iov = 0, control = 0;
  uint64_t iov_count = 0, control_size = 0;
  int name_length = 0;
};

bool ReadHead(pid_t tid, bool wide, uint64_t at, Head* out) {
  if (wide) {
    msghdr head;
    if (!ReadCallerBytes(tid, at, &head, sizeof(head))) return false;
    *out = {reinterpret_cast<uint64_t>(head.msg_name),
            reinterpret_cast<uint64_t>(head.msg_iov),
            reinterpret_cast<uint64_t>(head.msg_control),
            head.msg_iovlen,
            head.msg_controllen,
            static_cast<int>(head.msg_namelen)};
  } else {
    uint32_t head[7];  // name, its length, vectors, how many, control data, its length, flags
    if (!ReadCallerBytes(tid, at, head, sizeof(head))) return false;
    *out = {head[0], head[2], head[4], head[3], head[5], static_cast<int>(head[1])};
  }
  return true;
}

bool ReadVectors(pid_t tid, bool wide, uint64_t at, size_t count, std::vector<iovec>* out) {
  out->resize(count);
  if (count == 0) return true;
  if (wide) return ReadCallerBytes(tid, at, out->data(), count * sizeof(iovec));
  std::vector<uint32_t> narrow(count * 2);
  if (!ReadCallerBytes(tid, at, narrow.data(), narrow.size() * sizeof(uint32_t))) return false;
  for (size_t i = 0; i < count; ++i)
    (*out)[i] = {reinterpret_cast<void*>(uint64_t{narrow[i * 2]}), narrow[i * 2 + 1]};
  return true;
}

int ReadPayload(pid_t tid, std::vector<iovec> from, bool stream, std::string* out) {
  size_t total = 0;
  for (iovec& piece : from) {
    if (piece.iov_len > SSIZE_MAX - total) return EINVAL;
    if (stream) piece.iov_len = std::min(piece.iov_len, kPayloadMost - total);
    total += piece.iov_len;
  }
  if (total > kPayloadMost) return EMSGSIZE;
  out->resize(total);
  if (total == 0) return 0;
  const iovec into{out->data(), total};
  const ssize_t n = process_vm_readv(tid, &into, 1, from.data(), from.size(), 0);
  return n == static_cast<ssize_t>(total) ? 0 : EFAULT;
}

}  // namespace

MessageLayout MessageLayoutOf(const seccomp_data& data) {
  const bool wide = (data.arch & __AUDIT_ARCH_64BIT) != 0 && (static_cast<uint32_t>(data.nr) & kX32Bit) == 0;
  return wide ? MessageLayout{true, sizeof(mmsghdr), offsetof(mmsghdr, msg_len)}
              : MessageLayout{false, 32, 28};
}

int ReadSocketName(pid_t tid, uint64_t address, int length, SocketMessage* out) {
  if (length < 0 || length > static_cast<int>(sizeof(sockaddr_storage))) return EINVAL;
  out->has_name = true;
  out->name.resize(static_cast<size_t>(length));
  return length == 0 || ReadCallerBytes(tid, address, out->name.data(), out->name.size()) ? 0 : EFAULT;
}

int ReadSendTo(const SocketCall& call, const seccomp_notif& request, bool stream, SocketMessage* out) {
  const auto tid = static_cast<pid_t>(request.pid);
  const __u64* args = request.data.args;
  const int error = ReadPayload(tid, {{reinterpret_cast<void*>(args[1]), args[2]}}, stream, &out->payload);
  if (error != 0 || args[call.address] == 0) return error;
  return ReadSocketName(tid, args[call.address], static_cast<int>(args[call.length]), out);
}

int ReadMessageAt(pid_t tid, const MessageLayout& layout, uint64_t at, bool stream, SocketMessage* out) {
  Head head;
  if (!ReadHead(tid, layout.wide, at, &head)) return EFAULT;
  if (head.name_length < 0) return EINVAL;
  if (head.iov_count > IOV_MAX) return EMSGSIZE;
  std::vector<iovec> from;
  if (!ReadVectors(tid, layout.wide, head.iov, head.iov_count, &from)) return EFAULT;
  if (const int error = ReadPayload(tid, std::move(from), stream, &out->payload); error != 0) return error;
  if (head.control != 0 && head.control_size != 0) {
    if (!layout.wide) return ENOTSUP;
    if (head.control_size > kControlMost) return ENOBUFS;
    out->control.resize(head.control_size);
    if (!ReadCallerBytes(tid, head.control, out->control.data(), out->control.size())) return EFAULT;
  }
  if (head.name == 0 || head.name_length == 0) return 0;
  const int most = sizeof(sockaddr_storage);
  return ReadSocketName(tid, head.name, std::min(head.name_length, most), out);
}

bool WriteCallerBytes(pid_t tid, uint64_t address, const void* from, size_t size) {
  const iovec local{const_cast<void*>(from), size};
  const iovec remote{reinterpret_cast<void*>(address), size};
  return process_vm_writev(tid, &local, 1, &remote, 1, 0) == static_cast<ssize_t>(size);
}

}  // namespace agentmon
