#include "common/kernel/proc_fs.h"

#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>

namespace agentmon {

TEST_CASE("our own process is described by /proc") {
  const ProcFs proc;
  const auto stat = proc.Stat(getpid());
  REQUIRE(stat.ok());
  CHECK(stat->parent == getppid());
  CHECK(stat->start_ticks > 0);
  CHECK(*proc.ThreadGroup(getpid()) == getpid());
  const mode_t mask = umask(0027);
  CHECK(*proc.Umask(getpid()) == 0027);
  umask(mask);
  CHECK(*proc.Uid(getpid()) == getuid());
  CHECK(proc.Argv(getpid())->size() >= 1);
  CHECK(proc.Executable(getpid())->find("test") != std::string::npos);
}

TEST_CASE("a name with parentheses and spaces does not shift the fields of stat") {
  prctl(PR_SET_NAME, ") R 1 (x");
  const auto stat = ProcFs().Stat(getpid());
  REQUIRE(stat.ok());
  CHECK(stat->comm == ") R 1 (x");
  CHECK(stat->parent == getppid());
}

TEST_CASE("a process that does not exist is NotFound") {
  CHECK(absl::IsNotFound(ProcFs().Stat(0x3fffffff).status()));
}

}  // namespace agentmon
