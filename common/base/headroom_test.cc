#include "common/base/headroom.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <functional>

#include "absl/strings/match.h"

namespace agentmon {
namespace {

// What CheckHeadroom says in a child with this limit.
std::string Said(const Headroom& wanted, __rlimit_resource resource, rlim_t value) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t child = fork();
  if (child == 0) {
    const rlimit limit{value, value};
    if (setrlimit(resource, &limit) != 0) _exit(1);
    const absl::Status status = CheckHeadroom(wanted);
    (void)!write(ends[1], status.message().data(), status.message().size());
    _exit(0);
  }
  close(ends[1]);
  char text[1024];
  const ssize_t size = read(ends[0], text, sizeof text);
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  REQUIRE(status == 0);
  return std::string(text, static_cast<size_t>(std::max<ssize_t>(size, 0)));
}

}  // namespace

TEST_CASE("what is there may be taken, and is given back") {
  for (int i = 0; i < 50; ++i) CHECK(CheckHeadroom({100, 20, 1 << 20}).ok());
}

TEST_CASE("too few descriptors are told with their limit") {
  const std::string said = Said({40, 0, 4096}, RLIMIT_NOFILE, 30);
  CHECK(absl::StrContains(said, "too few file descriptors"));
  CHECK(absl::StrContains(said, "'ulimit -n', which is 30"));
  CHECK(Said({4, 0, 4096}, RLIMIT_NOFILE, 30).empty());
}

// The sanitizers take terabytes of address space for themselves.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_CASE("too little address space is told with its limit") {
  const std::string said = Said({0, 0, size_t{1} << 30}, RLIMIT_AS, size_t{512} << 20);
  CHECK(absl::StrContains(said, "1024 MiB are needed"));
  CHECK(absl::StrContains(said, "'ulimit -v', which is 524288"));
}
#endif

TEST_CASE("too few threads are told with their limit") {
  if (geteuid() == 0) return;  // root has no limit of processes
  const std::string said = Said({0, 4, 4096}, RLIMIT_NPROC, 1);
  CHECK(absl::StrContains(said, "of the 4 threads"));
  CHECK(absl::StrContains(said, "'ulimit -u', which is 1"));
}

}  // namespace agentmon
