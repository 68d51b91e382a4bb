#include "daemon/session/adoptable.h"

#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/refusal.h"
#include "common/base/status.h"
#include "daemon/session/session_cgroups.h"

namespace agentmon {
namespace {

using absl::StatusCode;

absl::Status No(absl::string_view reason, pid_t pid, absl::string_view why, absl::string_view hint = "") {
  return Refusal(StatusCode::kFailedPrecondition, reason, absl::StrCat("pid ", pid, " ", why), hint);
}

std::string ReadLink(const std::string& path) {
  std::string target(256, '\0');
  const ssize_t n = ::readlink(path.c_str(), target.data(), target.size());
  target.resize(n < 0 ? 0 : static_cast<size_t>(n));
  return target;
}

// Every id on the "Uid:" or "Gid:" line is the given one.
bool AllIds(absl::string_view status, absl::string_view field, uint32_t id) {
  for (absl::string_view line : absl::StrSplit(status, '\n')) {
    if (!absl::ConsumePrefix(&line, field)) continue;
    for (absl::string_view word : absl::StrSplit(line, '\t', absl::SkipEmpty())) {
      uint32_t value = 0;
      if (!absl::SimpleAtoi(word, &value) || value != id) return false;
    }
    return true;
  }
  return false;
}

bool NoCapabilities(absl::string_view status) {
  for (absl::string_view line : absl::StrSplit(status, '\n')) {
    if (absl::ConsumePrefix(&line, "CapPrm:\t"))
      return absl::StripAsciiWhitespace(line) == "0000000000000000";
  }
  return false;
}

// ptrace(2), PTRACE_MODE_ATTACH_REALCREDS, for a caller without CAP_SYS_PTRACE.
absl::Status CheckPtraceRights(const ProcFs& proc, const Caller& caller, pid_t pid) {
  if (caller.role == Role::kAdmin && caller.uid == 0) return absl::OkStatus();
  const std::string dir = absl::StrCat(proc.root(), "/", pid);
  ASSIGN_OR_RETURN(const std::string status, ReadWholeFile(dir + "/status"));
  struct stat st {};
  // /proc/PID belongs to root while the process is not dumpable (proc(5)).
  const bool dumpable = ::stat(dir.c_str(), &st) == 0 && st.st_uid == caller.uid;
  if (!AllIds(status, "Uid:", caller.uid) || !AllIds(status, "Gid:", caller.gid) || !NoCapabilities(status) ||
      !dumpable) {
    return Refusal(StatusCode::kPermissionDenied, "NO_PTRACE_RIGHTS",
                   absl::StrCat("pid ", pid, " is not yours to attach to"),
                   "attach needs the rights that ptrace needs: same user and group, no extra privileges");
  }
  const auto yama = ReadWholeFile("/proc/sys/kernel/yama/ptrace_scope");
  if (yama.ok() && (absl::StartsWith(*yama, "2") || absl::StartsWith(*yama, "3"))) {
    return Refusal(StatusCode::kPermissionDenied, "NO_PTRACE_RIGHTS",
                   "this host reserves ptrace for root (kernel.yama.ptrace_scope)", "ask an administrator");
  }
  return absl::OkStatus();
}

// The process that a service manager started as a unit, by what /proc tells: directly below a manager
// and in a *.service cgroup.
bool IsUnitMain(const ProcFs& proc, const ProcStat& stat, absl::string_view cgroup) {
  if (!absl::EndsWith(cgroup, ".service")) return false;
  if (stat.parent == 1) return true;
  const auto parent = proc.Stat(stat.parent);
  return parent.ok() && parent->comm == "systemd";
}

}  // namespace

absl::Status CheckMovable(const ProcFs& proc, const Caller& caller, pid_t pid) {
  ASSIGN_OR_RETURN(const std::string cgroup, proc.CgroupPath(pid));
  if (IsSessionCgroupPath(cgroup)) return No("IN_A_SESSION", pid, "is in a session already");
  ASSIGN_OR_RETURN(const ProcStat stat, proc.Stat(pid));  // it may have ended meanwhile
  if (pid == ::getpid() || stat.parent == ::getpid()) return No("OURS", pid, "belongs to agentmond");
  if (ReadLink(absl::StrCat(proc.root(), "/", pid, "/exe")).empty() && caller.uid == 0) {
    return No("KERNEL_THREAD", pid, "is a kernel thread");
  }
  return CheckPtraceRights(proc, caller, pid);
}

absl::Status CheckAdoptable(const ProcFs& proc, const Caller& caller, pid_t pid) {
  if (pid <= 0) {
    return Refusal(StatusCode::kInvalidArgument, "BAD_PID", absl::StrCat("not a process id: ", pid));
  }
  if (pid == 1) return No("INIT", pid, "is the init process", "attach the agent itself");
  const auto stat = proc.Stat(pid);
  if (!stat.ok()) {
    return Refusal(StatusCode::kNotFound, "NO_SUCH_PROCESS", absl::StrCat("no process with pid ", pid));
  }
  const auto tgid = proc.ThreadGroup(pid);
  if (tgid.ok() && *tgid != pid) {
    return No("A_THREAD", pid, absl::StrCat("is a thread of process ", *tgid), "attach that process");
  }
  if (stat->state == 'Z') return No("ENDED", pid, "has ended");
  if (stat->comm == "agentmond" || absl::StartsWith(stat->comm, "agentmon-hold")) {
    return No("OURS", pid, "belongs to agentmond");
  }
  if (pid == caller.pid) return No("OURS", pid, "is the command that asks");
  RETURN_IF_ERROR(CheckMovable(proc, caller, pid));
  const std::string dir = absl::StrCat(proc.root(), "/", pid);
  if (ReadLink(dir + "/ns/pid") != ReadLink(proc.root() + "/self/ns/pid")) {
    return No("IN_A_CONTAINER", pid, "runs in a container (another pid namespace)",
              "run agentmon inside the container");
  }
  ASSIGN_OR_RETURN(const std::string cgroup, proc.CgroupPath(pid));
  if (stat->comm == "systemd" || IsUnitMain(proc, *stat, cgroup)) {
    return No("UNIT", pid, "is a service manager or the main process of a unit",
              "moving it would take it from its unit; start the agent with 'agentmon run'");
  }
  return absl::OkStatus();
}

}  // namespace agentmon
