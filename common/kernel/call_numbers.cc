#include "common/kernel/call_numbers.h"

#include <linux/audit.h>
#include <seccomp.h>

#include "absl/strings/string_view.h"
#include "common/kernel/mediated_calls.h"

namespace agentmon {
namespace {

constexpr CallArch kArchs[] = {
#if defined(__x86_64__)
    {AUDIT_ARCH_X86_64, SCMP_ARCH_X86_64},
    {AUDIT_ARCH_X86_64, SCMP_ARCH_X32},
    {AUDIT_ARCH_I386, SCMP_ARCH_X86},
#elif defined(__aarch64__)
    {AUDIT_ARCH_AARCH64, SCMP_ARCH_AARCH64},
    {AUDIT_ARCH_ARM, SCMP_ARCH_ARM},
#endif
};

// libseccomp 2.5.4 does not know these names. Calls since Linux 5.1 have one number everywhere.
struct NewCall {
  absl::string_view name;
  int number;
};
constexpr NewCall kNewCalls[] = {{"fchmodat2", kFchmodat2Number}, {"open_tree_attr", 467}};

// The 32-bit x86 calls that libseccomp gives numbers of its own, because socketcall(2) can make them too.
constexpr NewCall kX86SocketCalls[] = {{"socket", 359},    {"socketpair", 360}, {"connect", 362},
                                       {"sendto", 369},    {"sendmsg", 370},    {"sendmmsg", 345},
                                       {"setsockopt", 366}};

}  // namespace

absl::Span<const CallArch> CallArchs() { return kArchs; }

int CallNumber(const CallArch& arch, const char* name) {
  for (const NewCall& call : kNewCalls) {
    if (call.name != name) continue;
    return arch.libseccomp == SCMP_ARCH_X32 ? call.number | static_cast<int>(kX32Bit) : call.number;
  }
  if (arch.libseccomp == SCMP_ARCH_X86) {
    for (const NewCall& call : kX86SocketCalls) {
      if (call.name == name) return call.number;
    }
  }
  return seccomp_syscall_resolve_name_arch(arch.libseccomp, name);
}

}  // namespace agentmon
