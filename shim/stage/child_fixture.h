// Stages cannot be undone: tests run them in a child and look at its exit status.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <functional>

namespace agentmon {

constexpr int kStageFailed = 250;

// What body returns (0 to 249), or minus the signal that ended it.
inline int InChild(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

// 0, or the errno of a call that failed.
inline int ErrorOf(long result) { return result < 0 ? errno : 0; }

}  // namespace agentmon
