#include "daemon/probe/call_table.h"

#include <linux/audit.h>
#include <seccomp.h>

#include "absl/strings/string_view.h"
#include "common/kernel/call_numbers.h"

namespace agentmon {
namespace {

struct Arch {
  uint32_t audit;       // as seccomp_data carries it
  uint32_t libseccomp;  // as libseccomp names it
};

constexpr Arch kArchs[] = {
#if defined(__x86_64__)
    {AUDIT_ARCH_X86_64, SCMP_ARCH_X86_64},
    {AUDIT_ARCH_X86_64, SCMP_ARCH_X32},  // same arch, numbers with bit 30
    {AUDIT_ARCH_I386, SCMP_ARCH_X86},
#elif defined(__aarch64__)
    {AUDIT_ARCH_AARCH64, SCMP_ARCH_AARCH64},
    {AUDIT_ARCH_ARM, SCMP_ARCH_ARM},
#endif
};

int Number(const Arch& arch, const MediatedCall& call) {
  if (absl::string_view(call.name) != "fchmodat2")
    return seccomp_syscall_resolve_name_arch(arch.libseccomp, call.name);
  return arch.libseccomp == SCMP_ARCH_X32 ? kFchmodat2Number | 0x40000000 : kFchmodat2Number;
}

}  // namespace

CallTable::CallTable() {
  for (const Arch& arch : kArchs) {
    for (const MediatedCall& call : kMediatedCalls) {
      const int number = Number(arch, call);
      if (number >= 0) calls_[{arch.audit, number}] = &call;  // negative: not on this architecture
    }
  }
  for (const CallArch& arch : CallArchs()) {
    for (const SocketCall& call : kSocketCalls) {
      const int number = CallNumber(arch, call.name);
      if (number >= 0) socket_calls_[{arch.audit, number}] = &call;
    }
  }
}

const SocketCall* CallTable::FindSocket(uint32_t arch, int number) const {
  const auto found = socket_calls_.find({arch, number});
  return found == socket_calls_.end() ? nullptr : found->second;
}

const MediatedCall* CallTable::Find(uint32_t arch, int number) const {
  const auto found = calls_.find({arch, number});
  return found == calls_.end() ? nullptr : found->second;
}

}  // namespace agentmon
