#include "common/policy/subject.h"

#include <fcntl.h>

namespace agentmon::policy {

Subject FileSubject(uint32_t operations, absl::string_view path, absl::string_view new_path) {
  Subject s;
  s.operations = operations;
  s.path = path;
  s.new_path = new_path;
  return s;
}

Subject ExecSubject(absl::string_view exe, absl::Span<const absl::string_view> argv) {
  Subject s;
  s.kind = RuleKind::kCommand;
  s.exe = exe;
  s.argv = argv;
  return s;
}

Subject UnixSubject(uint32_t operation, absl::string_view path) {
  Subject s;
  s.kind = RuleKind::kUnix;
  s.operations = operation;
  s.path = path;
  return s;
}

Subject ConnectSubject(const Address& address, uint16_t port, uint8_t protocol, absl::string_view name) {
  Subject s;
  s.kind = RuleKind::kNetwork;
  s.address = address;
  s.port = port;
  s.protocol = protocol;
  s.name = name;
  return s;
}

Subject QuerySubject(absl::string_view name) {
  Subject s;
  s.kind = RuleKind::kNetwork;
  s.network_op = NetworkOp::kQuery;
  s.name = name;
  return s;
}

Subject SignalSubject(int signal, uint32_t target) {
  Subject s;
  s.kind = RuleKind::kSignal;
  s.signal = signal;
  s.target = target;
  return s;
}

uint32_t OperationsOfOpen(int flags) {
  constexpr int kTmpFile = O_TMPFILE & ~O_DIRECTORY;  // O_TMPFILE holds the bit of O_DIRECTORY
  if ((flags & kTmpFile) || ((flags & O_CREAT) && (flags & O_EXCL))) return kCreate;
  const int access = flags & O_ACCMODE;
  if (access == O_RDWR) return kWrite | kOpen | kRead;
  if (access == O_WRONLY || (flags & (O_APPEND | O_TRUNC | O_CREAT))) {
    return access == O_RDONLY ? kWrite | kOpen | kRead : kWrite;
  }
  return kOpen | kRead;
}

}  // namespace agentmon::policy
