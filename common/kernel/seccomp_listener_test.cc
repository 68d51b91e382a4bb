#include "common/kernel/seccomp_listener.h"

#include <linux/filter.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>

namespace agentmon {

TEST_CASE("a pipe is no seccomp listener, a listener is one") {
  int pipe_fds[2];
  REQUIRE(pipe(pipe_fds) == 0);
  CHECK(absl::IsInvalidArgument(CheckSeccompListener(pipe_fds[0])));
  CHECK_FALSE(CheckSeccompListener(-1).ok());
  close(pipe_fds[0]);
  close(pipe_fds[1]);
  const pid_t child = fork();
  if (child == 0) {
    sock_filter allow[] = {BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    sock_fprog program{1, allow};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    const long fd = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
    _exit(fd >= 0 && CheckSeccompListener(static_cast<int>(fd)).ok() ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  CHECK(status == 0);
}

}  // namespace agentmon
