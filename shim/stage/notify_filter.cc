#include "shim/stage/notify_filter.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/kernel/mediated_calls.h"
#include "common/kernel/seccomp_listener.h"

namespace agentmon {
namespace {

using Filter = std::unique_ptr<void, decltype(&seccomp_release)>;

int CallNumber(const MediatedCall& call) {
  if (std::strcmp(call.name, "fchmodat2") == 0) return kFchmodat2Number;
  return seccomp_syscall_resolve_name(call.name);
}

// Negative errno as libseccomp gives it.
int AddCall(scmp_filter_ctx filter, const MediatedCall& call) {
  const int number = CallNumber(call);
  if (number == __NR_SCMP_ERROR) return 0;  // not on this architecture, nor on its 32-bit one
  if (call.act != FileAct::kOpen) return seccomp_rule_add(filter, SCMP_ACT_NOTIFY, number, 0);
  // libseccomp cannot say "any of these bits": one rule per bit.
  for (uint32_t bit = 1; bit != 0; bit <<= 1) {
    if ((kMediatedOpenFlags & bit) == 0) continue;
    const scmp_arg_cmp has_bit = SCMP_CMP(static_cast<unsigned>(call.flags), SCMP_CMP_MASKED_EQ, bit, bit);
    if (const int r = seccomp_rule_add(filter, SCMP_ACT_NOTIFY, number, 1, has_bit); r != 0) return r;
  }
  return 0;
}

absl::Status AddArchitectures(scmp_filter_ctx filter) {
#if defined(__x86_64__)
  for (const uint32_t arch : {SCMP_ARCH_X86, SCMP_ARCH_X32}) {
    if (const int r = seccomp_arch_add(filter, arch); r != 0)
      return ErrnoStatus(-r, "add architecture to filter");
  }
#elif defined(__aarch64__)
  if (const int r = seccomp_arch_add(filter, SCMP_ARCH_ARM); r != 0)
    return ErrnoStatus(-r, "add architecture to filter");
#endif
  // Any other architecture is let through unobserved; libseccomp's default kills.
  if (const int r = seccomp_attr_set(filter, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_ALLOW); r != 0) {
    return ErrnoStatus(-r, "set filter's answer to foreign architectures");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<sock_filter>> BuildProgram() {
  Filter filter(seccomp_init(SCMP_ACT_ALLOW), &seccomp_release);
  if (filter == nullptr) return absl::InternalError("seccomp_init failed");
  RETURN_IF_ERROR(AddArchitectures(filter.get()));
  seccomp_attr_set(filter.get(), SCMP_FLTATR_CTL_OPTIMIZE,
                   2);  // binary tree; an older library's list works too
  for (const MediatedCall& call : kMediatedCalls) {
    if (const int r = AddCall(filter.get(), call); r != 0) {
      return ErrnoStatus(-r, absl::StrCat("add ", call.name, " to filter"));
    }
  }
  UniqueFd file(memfd_create("agentmon-filter", MFD_CLOEXEC));
  if (!file.valid()) return ErrnoStatus(errno, "memfd_create");
  if (const int r = seccomp_export_bpf(filter.get(), file.get()); r != 0)
    return ErrnoStatus(-r, "export filter");
  struct stat st {};
  if (fstat(file.get(), &st) != 0) return ErrnoStatus(errno, "fstat filter");
  std::vector<sock_filter> program(static_cast<size_t>(st.st_size) / sizeof(sock_filter));
  const ssize_t bytes = static_cast<ssize_t>(program.size() * sizeof(sock_filter));
  if (pread(file.get(), program.data(), static_cast<size_t>(bytes), 0) != bytes)
    return ErrnoStatus(EIO, "read filter");
  return program;
}

}  // namespace

absl::StatusOr<UniqueFd> InstallNotifyFilter() {
  ASSIGN_OR_RETURN(std::vector<sock_filter> program, BuildProgram());
  const sock_fprog prog{static_cast<unsigned short>(program.size()), program.data()};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return ErrnoStatus(errno, "set no_new_privs");
  // Loaded by hand: libseccomp 2.5.4 does not know WAIT_KILLABLE_RECV, without which a caught signal
  // ends a waiting call with EINTR. SPEC_ALLOW: a filter that only observes wants no mitigation.
  const unsigned long flags =
      SECCOMP_FILTER_FLAG_NEW_LISTENER | SECCOMP_FILTER_FLAG_SPEC_ALLOW | kSeccompWaitKillable;
  const long fd = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &prog);
  if (fd >= 0) return UniqueFd(static_cast<int>(fd));
  if (errno == EBUSY)
    return absl::FailedPreconditionError("a seccomp filter with a listener is installed already (EBUSY)");
  if (errno == EINVAL) return absl::UnimplementedError("the kernel lacks WAIT_KILLABLE_RECV (Linux 5.19)");
  return ErrnoStatus(errno, "install seccomp filter");
}

}  // namespace agentmon
