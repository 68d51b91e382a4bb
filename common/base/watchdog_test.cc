#include "common/base/watchdog.h"

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <functional>

namespace agentmon {
namespace {

struct End {
  int status;
  std::string err;
};

// How a child ends that does this below a watchdog.
End EndOf(absl::Duration patience, const std::function<void()>& act) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t child = fork();
  if (child == 0) {
    Watchdog watchdog({patience, 42, ends[1], "hung\n", "aborted\n"});
    act();
    _exit(0);
  }
  close(ends[1]);
  char text[100];
  const ssize_t size = read(ends[0], text, sizeof text);
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1,
          std::string(text, static_cast<size_t>(std::max<ssize_t>(size, 0)))};
}

}  // namespace

TEST_CASE("what does not end is ended, also where all signals are blocked") {
  sigset_t everything, before;
  sigfillset(&everything);
  pthread_sigmask(SIG_SETMASK, &everything, &before);
  const End end = EndOf(absl::Milliseconds(20), [] {
    for (;;) pause();
  });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  CHECK(end.status == 42);
  CHECK(end.err == "hung\n");
}

TEST_CASE("what aborts ends with a reason and without a signal") {
  const End end = EndOf(absl::InfiniteDuration(), [] { abort(); });
  CHECK(end.status == 42);
  CHECK(end.err == "aborted\n");
}

TEST_CASE("what ends in time is left alone, and signals are as they were") {
  CHECK(EndOf(absl::Minutes(1), [] {}).status == 0);
  sigset_t before, after;
  pthread_sigmask(SIG_SETMASK, nullptr, &before);
  { Watchdog watchdog({absl::Minutes(1), 42, 2, "", ""}); }
  pthread_sigmask(SIG_SETMASK, nullptr, &after);
  for (int number = 1; number < SIGRTMAX; ++number)
    CHECK(sigismember(&before, number) == sigismember(&after, number));
  struct sigaction action {};
  sigaction(SIGRTMAX, nullptr, &action);
  CHECK(action.sa_handler == SIG_DFL);
}

}  // namespace agentmon
