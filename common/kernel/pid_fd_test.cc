#include "common/kernel/pid_fd.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>

namespace agentmon {

TEST_CASE("a pidfd knows when its process has ended") {
  const pid_t child = fork();
  if (child == 0) {
    pause();
    _exit(0);
  }
  const auto fd = PidFd::Open(child);
  REQUIRE(fd.ok());
  CHECK(fd->Alive());
  CHECK(fd->Signal(SIGKILL).ok());
  waitpid(child, nullptr, 0);
  CHECK_FALSE(fd->Alive());
  CHECK(absl::IsNotFound(PidFd::Open(child).status()));
}

}  // namespace agentmon
