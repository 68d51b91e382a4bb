#include "daemon/session/listener_sessions.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>

namespace agentmon {
namespace {

// A child that ends when the other end of the pipe is closed.
class Child {
 public:
  Child() {
    REQUIRE(pipe(pipe_) == 0);
    pid_ = fork();
    if (pid_ != 0) return;
    close(pipe_[1]);
    char byte;
    _exit(static_cast<int>(read(pipe_[0], &byte, 1)));
  }
  ~Child() {
    End();
    close(pipe_[0]);
  }
  void End() {
    if (pid_ == 0) return;
    close(pipe_[1]);
    waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }
  pid_t pid() const { return pid_; }

 private:
  int pipe_[2];
  pid_t pid_;
};

}  // namespace

TEST_CASE("a session's number is no cgroup's, and always the same") {
  CHECK(ListenerNumber("sabc") == ListenerNumber("sabc"));
  CHECK(ListenerNumber("sabc") != ListenerNumber("sabd"));
  CHECK(ListenerNumber("sabc") >> 61 == 1);
}

TEST_CASE("what descends from a process that was met is in its session") {
  ListenerSessions sessions;
  CHECK(sessions.Processes("s1").empty());
  sessions.Saw("s1", getpid(), true);
  Child child;
  const auto pids = sessions.Processes("s1");
  CHECK(std::count(pids.begin(), pids.end(), child.pid()) == 1);
  CHECK(sessions.SessionOf(child.pid()) == "s1");
  CHECK(sessions.SessionOf(getppid()).empty());
  sessions.Forget("s1");
  CHECK(sessions.SessionOf(child.pid()).empty());
}

TEST_CASE("what has ended is in none") {
  ListenerSessions sessions;
  Child child;
  const pid_t pid = child.pid();
  sessions.Saw("s1", pid, true);
  CHECK(sessions.Processes("s1") == std::vector<pid_t>{pid});
  child.End();
  CHECK(sessions.Processes("s1").empty());
  CHECK(sessions.SessionOf(pid).empty());
}

TEST_CASE("a signal reaches who is in the session") {
  ListenerSessions sessions;
  const pid_t pid = fork();
  if (pid == 0) {
    for (;;) pause();
  }
  sessions.Saw("s1", pid, true);
  sessions.Signal("s1", SIGKILL);
  int status = 0;
  waitpid(pid, &status, 0);
  CHECK(WIFSIGNALED(status));
}

}  // namespace agentmon
