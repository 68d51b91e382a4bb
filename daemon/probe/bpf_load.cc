#include "daemon/probe/bpf_load.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <linux/bpf.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/log.h"

namespace agentmon {
namespace {

// What libbpf calls debug is a line per relocation.
int LogFromLibbpf(enum libbpf_print_level level, const char* format, va_list args) {
  if (level == LIBBPF_DEBUG || !LogEnabled(LogLevel::kDebug)) return 0;
  char line[1024];
  const int length = std::vsnprintf(line, sizeof(line), format, args);
  LogLine(LogLevel::kDebug, absl::StripAsciiWhitespace(line));
  return length;
}

}  // namespace

void RouteLibbpfLog() { libbpf_set_print(LogFromLibbpf); }

absl::Status BpfError(int error_number, absl::string_view what) {
  absl::Status status = ErrnoStatus(error_number, what);
  if (error_number == EPERM || error_number == EACCES) {
    return WithContext(status, "BPF is refused here (needs CAP_SYS_ADMIN, or CAP_BPF and CAP_PERFMON)");
  }
  return status;
}

absl::Status CheckBpf() {
  if (access("/sys/kernel/btf/vmlinux", R_OK) != 0) {
    return absl::FailedPreconditionError("this kernel has no type information (CONFIG_DEBUG_INFO_BTF)");
  }
  UniqueFd map(bpf_map_create(BPF_MAP_TYPE_ARRAY, "am_check", 4, 8, 1, nullptr));
  if (map.valid()) return absl::OkStatus();
  if (errno == ENOSYS) return absl::FailedPreconditionError("this kernel has no BPF (CONFIG_BPF_SYSCALL)");
  return BpfError(errno, "make a BPF map");
}

uint64_t RecursionMisses(const bpf_program* program) {
  bpf_prog_info info{};
  uint32_t length = sizeof(info);
  const int fd = bpf_program__fd(program);
  if (fd < 0 || bpf_obj_get_info_by_fd(fd, &info, &length) != 0) return 0;
  return info.recursion_misses;
}

void LinkDestroyer::operator()(bpf_link* link) const { bpf_link__destroy(link); }

}  // namespace agentmon
