#include "common/kernel/own_program.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "common/base/status.h"
#include "common/base/unique_fd.h"

namespace agentmon {
namespace {

constexpr int kFirst = 3;
constexpr int kMost = 8;
constexpr int kAbove = 16;  // out of the way while they are put into their places

struct Descriptors {
  int fds[kMost];
  int count = 0;
};

// In the child of a process with threads: nothing but system calls.
[[noreturn]] void Execute(char* const argv[], const Descriptors& given) {
  int high[kMost];
  for (int i = 0; i < given.count; ++i) high[i] = fcntl(given.fds[i], F_DUPFD, kAbove);
  for (int i = 0; i < given.count; ++i) dup2(high[i], kFirst + i);
  execv("/proc/self/exe", argv);
  _exit(1);
}

}  // namespace

absl::Status StartOwnProgram(const char* name, const char* option, const char* argument,
                             std::initializer_list<int> descriptors) {
  Descriptors given;
  for (const int fd : descriptors) given.fds[given.count++] = fd;
  char* const argv[] = {const_cast<char*>(name), const_cast<char*>(option), const_cast<char*>(argument),
                        nullptr};
  const pid_t child = fork();
  if (child < 0) return ErrnoStatus(errno, "fork");
  if (child == 0) {
    // Twice, so that it is no child of this process.
    if (fork() != 0) _exit(0);
    Execute(argv, given);
  }
  waitpid(child, nullptr, 0);
  return absl::OkStatus();
}

void BecomeOwnProgram(const char* name, int descriptors) {
  setsid();
  prctl(PR_SET_NAME, name);
  for (const int signal_number : {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGPIPE, SIGUSR1, SIGUSR2}) {
    signal(signal_number, SIG_IGN);
  }
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  if (chdir("/") != 0) _exit(1);
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
  }
  setpriority(PRIO_PROCESS, 0, -20);  // agents wait for it, as for the daemon's threads
  {
    // Without it every call of every agent that it is asked about fails.
    const UniqueFd oom(open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC));
    [[maybe_unused]] const ssize_t n = write(oom.get(), "-900", 4);
  }
  const int null = open("/dev/null", O_RDWR);
  for (int fd = 0; fd < kFirst; ++fd) dup2(null, fd);
  syscall(SYS_close_range, kFirst + descriptors, ~0U, 0);
  for (int i = 0; i < descriptors; ++i) fcntl(kFirst + i, F_SETFD, FD_CLOEXEC);
}

}  // namespace agentmon
