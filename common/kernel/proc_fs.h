// What /proc says about processes. The root is an argument, so that tests bring their own.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace agentmon {

// The whole file; sizes that stat reports are not trusted (procfs says 0).
absl::StatusOr<std::string> ReadWholeFile(const std::string& path);

struct ProcStat {
  pid_t pid = 0;
  std::string comm;
  char state = '?';
  pid_t parent = 0;
  pid_t process_group = 0;
  uint64_t start_ticks = 0;   // since boot, in 1/sysconf(_SC_CLK_TCK) s
  uint64_t start_ns() const;  // the same, as exact as ticks are
};

// Thread-safe; every call reads anew. A process that is gone is NotFound.
class ProcFs {
 public:
  explicit ProcFs(std::string root = "/proc") : root_(std::move(root)) {}

  absl::StatusOr<ProcStat> Stat(pid_t pid) const;
  // Thread-group id of a thread.
  absl::StatusOr<pid_t> ThreadGroup(pid_t tid) const;
  // Real uid of the process.
  absl::StatusOr<uid_t> Uid(pid_t pid) const;
  absl::StatusOr<mode_t> Umask(pid_t tid) const;
  // How many seccomp filters it is under; NotFound also before Linux 5.9.
  absl::StatusOr<int> SeccompFilters(pid_t pid) const;
  absl::StatusOr<std::string> Executable(pid_t pid) const;  // target of /proc/PID/exe
  absl::StatusOr<std::string> Cwd(pid_t pid) const;
  absl::StatusOr<std::vector<std::string>> Argv(pid_t pid) const;
  // Path in the cgroup2 hierarchy ("/agentmon/s-1"), from the "0::" line.
  absl::StatusOr<std::string> CgroupPath(pid_t pid) const;
  std::vector<pid_t> Pids() const;
  const std::string& root() const { return root_; }

 private:
  std::string Path(pid_t pid, absl::string_view name) const;
  absl::StatusOr<std::string> Link(pid_t pid, absl::string_view name) const;
  absl::StatusOr<std::string> StatusField(pid_t pid, absl::string_view field) const;

  std::string root_;
};

}  // namespace agentmon
