#include "common/kernel/refused_calls.h"

#include <linux/sched.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/personality.h>
#include <sys/socket.h>

#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/kernel/call_numbers.h"

namespace agentmon {
namespace {

using Op = ArgTest::Op;

constexpr ArgTest Any(int8_t arg, uint32_t bits) { return {Op::kAnyBit, arg, bits}; }
constexpr ArgTest Is(int8_t arg, uint32_t value, uint32_t mask = ~0u) {
  return {Op::kEqual, arg, value, mask};
}
constexpr ArgTest Not(int8_t arg, uint32_t value) { return {Op::kNotEqual, arg, value}; }

constexpr uint32_t kCloneNamespaces =
    CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET;
constexpr uint32_t kUnshareNamespaces = kCloneNamespaces | CLONE_NEWTIME;  // in clone a part of the signal

constexpr uint32_t kSocketType = 0xf;      // SOCK_TYPE_MASK of the kernel
constexpr uint32_t kOldPacketSocket = 10;  // SOCK_PACKET: makes a packet socket of an inet one
constexpr uint32_t kProtocolByte = 0xff;   // beyond it: multipath TCP, SMC
constexpr uint32_t kSocketCallSocket = 1;  // SYS_SOCKET of socketcall(2)
constexpr uint32_t kDccp = 33, kSctp = 132;

constexpr CallFamily kPtrace = CallFamily::kPtrace, kBpf = CallFamily::kBpf,
                     kModules = CallFamily::kKernelModules, kNamespace = CallFamily::kNamespace,
                     kIoUring = CallFamily::kIoUring, kPerf = CallFamily::kPerf,
                     kKeyring = CallFamily::kKeyring, kHandles = CallFamily::kHandles,
                     kPersonality = CallFamily::kPersonality, kTerminal = CallFamily::kTerminal,
                     kSockets = CallFamily::kSockets, kSystem = CallFamily::kSystem;

constexpr RefusedCall kRefusedCalls[] = {
    {"ptrace", kPtrace},
    {"process_vm_readv", kPtrace},
    {"process_vm_writev", kPtrace},
    {"pidfd_getfd", kPtrace},
    {"kcmp", kPtrace},

    {"bpf", kBpf},

    {"create_module", kModules},
    {"init_module", kModules},
    {"finit_module", kModules},
    {"delete_module", kModules},
    {"kexec_load", kModules},
    {"kexec_file_load", kModules},

    {"unshare", kNamespace, EPERM, {Any(0, kUnshareNamespaces)}},
    {"clone", kNamespace, EPERM, {Any(0, kCloneNamespaces)}},
    {"clone3", kNamespace, ENOSYS},  // its flags are in memory; C libraries fall back to clone
    {"setns", kNamespace},
    {"mount", kNamespace},
    {"umount", kNamespace},
    {"umount2", kNamespace},
    {"pivot_root", kNamespace},
    {"open_tree", kNamespace},
    {"open_tree_attr", kNamespace},
    {"move_mount", kNamespace},
    {"fsopen", kNamespace},
    {"fsmount", kNamespace},
    {"fsconfig", kNamespace},
    {"fspick", kNamespace},
    {"mount_setattr", kNamespace},

    {"io_uring_setup", kIoUring},
    {"io_uring_enter", kIoUring},
    {"io_uring_register", kIoUring},

    {"perf_event_open", kPerf},
    {"userfaultfd", kPerf},

    {"add_key", kKeyring},
    {"request_key", kKeyring},
    {"keyctl", kKeyring},

    {"open_by_handle_at", kHandles},

    // Asking, the default, and what debuggers and setarch -R set.
    {"personality", kPersonality, EPERM, {Not(0, 0xffffffff), Not(0, PER_LINUX), Not(0, ADDR_NO_RANDOMIZE)}},

    {"ioctl", kTerminal, EPERM, {Is(1, TIOCSTI)}},
    {"ioctl", kTerminal, EPERM, {Is(1, TIOCLINUX)}},

    {"socket",
     kSockets,
     EPERM,
     {Not(0, AF_UNSPEC), Not(0, AF_UNIX), Not(0, AF_INET), Not(0, AF_INET6), Not(0, AF_NETLINK)}},
    {"socket", kSockets, EPERM, {Is(0, AF_INET), Is(1, SOCK_RAW, kSocketType)}},
    {"socket", kSockets, EPERM, {Is(0, AF_INET), Is(1, kOldPacketSocket, kSocketType)}},
    {"socket", kSockets, EPERM, {Is(0, AF_INET6), Is(1, SOCK_RAW, kSocketType)}},
    // Transports whose connects the network hooks of a session do not see.
    {"socket", kSockets, EPERM, {Is(0, AF_INET), Any(2, ~kProtocolByte)}},
    {"socket", kSockets, EPERM, {Is(0, AF_INET6), Any(2, ~kProtocolByte)}},
    {"socket", kSockets, EPERM, {Is(0, AF_INET), Is(2, kDccp)}},
    {"socket", kSockets, EPERM, {Is(0, AF_INET6), Is(2, kDccp)}},
    {"socket", kSockets, EPERM, {Is(0, AF_INET), Is(2, kSctp)}},
    {"socket", kSockets, EPERM, {Is(0, AF_INET6), Is(2, kSctp)}},
    {"socketpair", kSockets, EPERM, {Not(0, AF_UNSPEC), Not(0, AF_UNIX)}},
    // 32-bit x86: the family is in memory. C libraries of this decade call socket(2).
    {"socketcall", kSockets, EPERM, {Is(0, kSocketCallSocket)}},

    {"reboot", kSystem},
    {"swapon", kSystem},
    {"swapoff", kSystem},
    {"settimeofday", kSystem},
    {"stime", kSystem},
    {"clock_settime", kSystem},
    {"clock_settime64", kSystem},
    {"acct", kSystem},
    {"quotactl", kSystem},
    {"quotactl_fd", kSystem},
    {"sethostname", kSystem},
    {"setdomainname", kSystem},
    {"iopl", kSystem},
    {"ioperm", kSystem},
};

constexpr absl::string_view kNames[kCallFamilies] = {"ptrace",      "bpf",      "kernel_modules", "namespace",
                                                     "io_uring",    "perf",     "keyring",        "handles",
                                                     "personality", "terminal", "sockets",        "system"};

using RowsOfCall = absl::flat_hash_map<std::pair<uint32_t, int>, std::vector<const RefusedCall*>>;

RowsOfCall MakeRows() {
  RowsOfCall rows;
  for (const CallArch& arch : CallArchs()) {
    for (const RefusedCall& call : kRefusedCalls) {
      const int number = CallNumber(arch, call.name);
      if (number >= 0) rows[{arch.audit, number}].push_back(&call);
    }
  }
  return rows;
}

bool Holds(const ArgTest& test, const uint64_t args[6]) {
  const uint32_t have = static_cast<uint32_t>(args[test.arg]) & test.mask;
  switch (test.op) {
    case Op::kAnyBit:
      return (have & test.value) != 0;
    case Op::kEqual:
      return have == test.value;
    case Op::kNotEqual:
      return have != test.value;
    case Op::kNone:
      break;
  }
  return true;
}

}  // namespace

absl::string_view CallFamilyName(CallFamily family) { return kNames[static_cast<int>(family)]; }

std::optional<CallFamily> ParseCallFamily(absl::string_view name) {
  for (int i = 0; i < kCallFamilies; ++i) {
    if (kNames[i] == name) return static_cast<CallFamily>(i);
  }
  return std::nullopt;
}

absl::Span<const RefusedCall> RefusedCalls() { return kRefusedCalls; }

bool Refuses(const RefusedCall& call, const uint64_t args[6]) {
  for (const ArgTest& test : call.tests) {
    if (!Holds(test, args)) return false;
  }
  return true;
}

const RefusedCall* FindRefusedCall(uint32_t arch, int number, const uint64_t args[6]) {
  static const RowsOfCall& rows = *new RowsOfCall(MakeRows());
  const auto found = rows.find({arch, number});
  if (found == rows.end()) return nullptr;
  for (const RefusedCall* call : found->second) {
    if (Refuses(*call, args)) return call;
  }
  return nullptr;
}

}  // namespace agentmon
