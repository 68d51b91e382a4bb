#include "shim/stage/capabilities.h"

#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/status.h"

namespace agentmon {
namespace {

constexpr absl::string_view kNames[] = {"CAP_CHOWN",
                                        "CAP_DAC_OVERRIDE",
                                        "CAP_DAC_READ_SEARCH",
                                        "CAP_FOWNER",
                                        "CAP_FSETID",
                                        "CAP_KILL",
                                        "CAP_SETGID",
                                        "CAP_SETUID",
                                        "CAP_SETPCAP",
                                        "CAP_LINUX_IMMUTABLE",
                                        "CAP_NET_BIND_SERVICE",
                                        "CAP_NET_BROADCAST",
                                        "CAP_NET_ADMIN",
                                        "CAP_NET_RAW",
                                        "CAP_IPC_LOCK",
                                        "CAP_IPC_OWNER",
                                        "CAP_SYS_MODULE",
                                        "CAP_SYS_RAWIO",
                                        "CAP_SYS_CHROOT",
                                        "CAP_SYS_PTRACE",
                                        "CAP_SYS_PACCT",
                                        "CAP_SYS_ADMIN",
                                        "CAP_SYS_BOOT",
                                        "CAP_SYS_NICE",
                                        "CAP_SYS_RESOURCE",
                                        "CAP_SYS_TIME",
                                        "CAP_SYS_TTY_CONFIG",
                                        "CAP_MKNOD",
                                        "CAP_LEASE",
                                        "CAP_AUDIT_WRITE",
                                        "CAP_AUDIT_CONTROL",
                                        "CAP_SETFCAP",
                                        "CAP_MAC_OVERRIDE",
                                        "CAP_MAC_ADMIN",
                                        "CAP_SYSLOG",
                                        "CAP_WAKE_ALARM",
                                        "CAP_BLOCK_SUSPEND",
                                        "CAP_AUDIT_READ",
                                        "CAP_PERFMON",
                                        "CAP_BPF",
                                        "CAP_CHECKPOINT_RESTORE"};

absl::Status DropBounding(CapabilitySet keep) {
  for (unsigned long number = 0; number < 64; ++number) {
    if ((keep >> number & 1) != 0) continue;
    const int bounded = prctl(PR_CAPBSET_READ, number, 0, 0, 0);
    if (bounded < 0) return absl::OkStatus();  // the kernel knows no more
    if (bounded == 0 || prctl(PR_CAPBSET_DROP, number, 0, 0, 0) == 0) continue;
    if (errno == EPERM) return absl::OkStatus();
    return ErrnoStatus(errno, absl::StrCat("drop capability ", number, " from the bounding set"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<CapabilitySet> ParseCapabilities(const std::vector<std::string>& names) {
  CapabilitySet set = 0;
  for (const std::string& name : names) {
    CapabilitySet bit = 0;
    for (size_t i = 0; i < std::size(kNames); ++i) bit |= kNames[i] == name ? 1ull << i : 0;
    if (bit == 0) return absl::InvalidArgumentError(absl::StrCat(name, " is no capability"));
    set |= bit;
  }
  return set;
}

absl::Status DropCapabilities(CapabilitySet keep) {
  RETURN_IF_ERROR(DropBounding(keep));
  if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) != 0)
    return ErrnoStatus(errno, "empty the ambient capabilities");
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3]{};
  if (syscall(SYS_capget, &header, data) != 0) return ErrnoStatus(errno, "read the capabilities");
  for (int i = 0; i < _LINUX_CAPABILITY_U32S_3; ++i) {
    const auto kept = static_cast<uint32_t>(keep >> (32 * i));
    data[i].inheritable = 0;
    data[i].permitted &= kept;
    data[i].effective &= kept;
  }
  if (syscall(SYS_capset, &header, data) != 0) return ErrnoStatus(errno, "drop capabilities");
  return absl::OkStatus();
}

}  // namespace agentmon
