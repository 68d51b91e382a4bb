#include "daemon/enforce/session_try.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "common/base/status.h"
#include "common/base/unique_fd.h"

namespace agentmon {
namespace {

constexpr int kPatience_ms = 1000;

int ErrorOfRead(const char* path) {
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  return fd < 0 ? errno : 0;
}

// In a copy of a process of many threads: system calls only, and no memory is asked for.
[[noreturn]] void Try(const char* forbidden, mode_t mode, const char* spare, int out, int until) {
  SessionTries tries;
  char end;
  // One byte when it is in the cgroup.
  while (read(until, &end, 1) < 0 && errno == EINTR) {
  }
  tries.read = ErrorOfRead(forbidden);
  tries.change = chmod(forbidden, mode) != 0 ? errno : 0;
  tries.spare = ErrorOfRead(spare);
  if (write(out, &tries, sizeof(tries)) == sizeof(tries)) {
    while (read(until, &end, 1) < 0 && errno == EINTR) {
    }
  }
  _exit(0);
}

// Its end is not one of the session's.
void MoveHere(pid_t pid) {
  const auto mount = FindCgroup2Mount();
  if (!mount.ok()) return;
  if (const auto own = Cgroup::OpenOwn(*mount); own.ok()) own->AddProcess(pid).IgnoreError();
}

}  // namespace

absl::StatusOr<SessionTries> TryInSession(const Cgroup& cgroup, const std::string& forbidden,
                                          const std::string& spare) {
  struct stat st {};
  if (stat(forbidden.c_str(), &st) != 0) return ErrnoStatus(errno, "look at the file of the self-test");
  int results[2], life[2];
  if (pipe2(results, O_CLOEXEC) != 0) return ErrnoStatus(errno, "make a pipe");
  UniqueFd result(results[0]), result_end(results[1]);
  if (pipe2(life, O_CLOEXEC) != 0) return ErrnoStatus(errno, "make a pipe");
  UniqueFd until(life[0]), alive(life[1]);
  // Not by fork(3), which would run what other libraries have left for it; nor clone3, which systemd's filter
  // for namespaces does not let through.
  const long pid = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
  if (pid < 0) return ErrnoStatus(errno, "make a process");
  if (pid == 0) {
    close(alive.get());
    Try(forbidden.c_str(), st.st_mode & 07777, spare.c_str(), result_end.get(), until.get());
  }
  result_end.Reset();
  pollfd ready{result.get(), POLLIN, 0};
  SessionTries tries;
  const absl::Status moved = cgroup.AddProcess(static_cast<pid_t>(pid));
  const bool done = moved.ok() && write(alive.get(), "", 1) == 1 && poll(&ready, 1, kPatience_ms) == 1 &&
                    read(result.get(), &tries, sizeof(tries)) == static_cast<ssize_t>(sizeof(tries));
  MoveHere(static_cast<pid_t>(pid));
  alive.Reset();
  if (!done) kill(static_cast<pid_t>(pid), SIGKILL);
  while (waitpid(static_cast<pid_t>(pid), nullptr, __WALL) < 0 && errno == EINTR) {
  }
  RETURN_IF_ERROR(WithContext(moved, "move a process into the session"));
  if (!done) return absl::DeadlineExceededError("the forbidden acts were not answered in time");
  return tries;
}

}  // namespace agentmon
