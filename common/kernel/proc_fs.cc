#include "common/kernel/proc_fs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cstdlib>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/status.h"
#include "common/base/unique_fd.h"

namespace agentmon {

absl::StatusOr<std::string> ReadWholeFile(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY));
  if (!fd.valid()) return ErrnoStatus(errno, absl::StrCat("open ", path));
  std::string out;
  std::array<char, 16384> buffer;
  for (;;) {
    const ssize_t n = ::read(fd.get(), buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    // A process that ends between open and read answers ESRCH: the same as not being there.
    if (n < 0) return ErrnoStatus(errno == ESRCH ? ENOENT : errno, absl::StrCat("read ", path));
    if (n == 0) return out;
    out.append(buffer.data(), static_cast<size_t>(n));
  }
}

std::string ProcFs::Path(pid_t pid, absl::string_view name) const {
  return absl::StrCat(root_, "/", pid, "/", name);
}

absl::StatusOr<ProcStat> ProcFs::Stat(pid_t pid) const {
  ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(Path(pid, "stat")));
  // pid (comm) state ppid pgrp ...; comm may hold spaces and parentheses, so search from the end.
  const size_t open = text.find('(');
  const size_t close = text.rfind(')');
  if (open == std::string::npos || close == std::string::npos || close < open) {
    return absl::InternalError(absl::StrCat(Path(pid, "stat"), ": not in the expected form"));
  }
  const std::vector<absl::string_view> f =
      absl::StrSplit(absl::string_view(text).substr(close + 1), ' ', absl::SkipEmpty());
  ProcStat stat;
  stat.pid = pid;
  stat.comm = text.substr(open + 1, close - open - 1);
  // Field numbers of proc(5) less three: state is field 3, starttime field 22.
  if (f.size() < 20 || !absl::SimpleAtoi(f[1], &stat.parent) ||
      !absl::SimpleAtoi(f[2], &stat.process_group) || !absl::SimpleAtoi(f[19], &stat.start_ticks)) {
    return absl::InternalError(absl::StrCat(Path(pid, "stat"), ": not in the expected form"));
  }
  stat.state = f[0][0];
  return stat;
}

absl::StatusOr<std::string> ProcFs::StatusField(pid_t pid, absl::string_view field) const {
  ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(Path(pid, "status")));
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (absl::ConsumePrefix(&line, field) && absl::ConsumePrefix(&line, ":")) {
      return std::string(absl::StripAsciiWhitespace(line));
    }
  }
  return absl::NotFoundError(absl::StrCat(Path(pid, "status"), ": no field ", field));
}

uint64_t ProcStat::start_ns() const {
  static const auto kTicks = static_cast<uint64_t>(sysconf(_SC_CLK_TCK));
  return start_ticks * (1'000'000'000 / kTicks);
}

absl::StatusOr<pid_t> ProcFs::ThreadGroup(pid_t tid) const {
  ASSIGN_OR_RETURN(const std::string text, StatusField(tid, "Tgid"));
  pid_t tgid = 0;
  if (!absl::SimpleAtoi(text, &tgid)) return absl::InternalError("Tgid is not a number");
  return tgid;
}

absl::StatusOr<mode_t> ProcFs::Umask(pid_t tid) const {
  ASSIGN_OR_RETURN(const std::string text, StatusField(tid, "Umask"));
  char* end = nullptr;
  const unsigned long mask = strtoul(text.c_str(), &end, 8);
  if (end == text.c_str() || *end != '\0') return absl::InternalError("Umask is not an octal number");
  return static_cast<mode_t>(mask);
}

absl::StatusOr<int> ProcFs::SeccompFilters(pid_t pid) const {
  ASSIGN_OR_RETURN(const std::string text, StatusField(pid, "Seccomp_filters"));
  int count = 0;
  if (!absl::SimpleAtoi(text, &count)) {
    return absl::InternalError(absl::StrCat(Path(pid, "status"), ": not in the expected form"));
  }
  return count;
}

absl::StatusOr<uid_t> ProcFs::Uid(pid_t pid) const {
  ASSIGN_OR_RETURN(const std::string text, StatusField(pid, "Uid"));
  const std::vector<absl::string_view> f = absl::StrSplit(text, '\t');
  uid_t uid = 0;
  if (!absl::SimpleAtoi(f[0], &uid)) return absl::InternalError("Uid is not a number");
  return uid;
}

absl::StatusOr<std::string> ProcFs::Link(pid_t pid, absl::string_view name) const {
  const std::string path = Path(pid, name);
  std::string target(4096, '\0');
  const ssize_t n = ::readlink(path.c_str(), target.data(), target.size());
  if (n < 0) return ErrnoStatus(errno, absl::StrCat("readlink ", path));
  target.resize(static_cast<size_t>(n));
  return target;
}

absl::StatusOr<std::string> ProcFs::Executable(pid_t pid) const { return Link(pid, "exe"); }
absl::StatusOr<std::string> ProcFs::Cwd(pid_t pid) const { return Link(pid, "cwd"); }

absl::StatusOr<std::vector<std::string>> ProcFs::Argv(pid_t pid) const {
  ASSIGN_OR_RETURN(std::string text, ReadWholeFile(Path(pid, "cmdline")));
  if (!text.empty() && text.back() == '\0') text.pop_back();
  if (text.empty()) return std::vector<std::string>();
  return std::vector<std::string>(absl::StrSplit(text, '\0'));
}

absl::StatusOr<std::string> ProcFs::CgroupPath(pid_t pid) const {
  ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(Path(pid, "cgroup")));
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (absl::ConsumePrefix(&line, "0::")) return std::string(line);
  }
  return absl::NotFoundError(absl::StrCat(Path(pid, "cgroup"), ": no cgroup2 line"));
}

std::vector<pid_t> ProcFs::Pids() const {
  std::vector<pid_t> pids;
  DIR* dir = ::opendir(root_.c_str());
  if (dir == nullptr) return pids;
  while (const dirent* entry = ::readdir(dir)) {
    pid_t pid = 0;
    if (absl::SimpleAtoi(entry->d_name, &pid)) pids.push_back(pid);
  }
  ::closedir(dir);
  return pids;
}

}  // namespace agentmon
