#include "tests/host/program.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>

#include "common/base/unique_fd.h"

namespace agentmon {
namespace {

using SteadyClock = std::chrono::steady_clock;

struct Pipe {
  UniqueFd read, write;
  Pipe() {
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) != 0) abort();
    read = UniqueFd(fds[0]);
    write = UniqueFd(fds[1]);
  }
};

[[noreturn]] void Child(const std::vector<std::string>& argv, const ProgramOptions& options, int out,
                        int err) {
  const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
  dup2(null, 0);
  dup2(out, 1);
  dup2(err, 2);
  std::vector<char*> words;
  for (const std::string& word : argv) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  if (options.in_child) options.in_child();
  execvp(words[0], words.data());
  _exit(200);
}

// False at the end of the pipe.
bool Drain(int fd, std::string* into) {
  char buffer[4096];
  const ssize_t n = read(fd, buffer, sizeof(buffer));
  if (n > 0) into->append(buffer, static_cast<size_t>(n));
  return n > 0;
}

// Until the child is gone; its background processes may keep the pipes.
void Collect(int pidfd, const Pipe& out, const Pipe& err, int timeout_s, ProgramResult* result) {
  const auto deadline = SteadyClock::now() + std::chrono::seconds(timeout_s);
  pollfd fds[] = {{pidfd, POLLIN, 0}, {out.read.get(), POLLIN, 0}, {err.read.get(), POLLIN, 0}};
  for (;;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - SteadyClock::now()).count();
    if (left <= 0) {
      result->timed_out = true;
      return;
    }
    poll(fds, 3, static_cast<int>(left));
    bool idle = true;
    if (fds[1].revents != 0) idle = false, fds[1].fd = Drain(out.read.get(), &result->out) ? fds[1].fd : -1;
    if (fds[2].revents != 0) idle = false, fds[2].fd = Drain(err.read.get(), &result->err) ? fds[2].fd : -1;
    if (idle && fds[0].revents != 0) return;
  }
}

}  // namespace

ProgramResult RunProgram(const std::vector<std::string>& argv, const ProgramOptions& options) {
  Pipe out, err;
  const pid_t pid = fork();
  if (pid == 0) Child(argv, options, out.write.get(), err.write.get());
  out.write.Reset();
  err.write.Reset();
  UniqueFd pidfd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (options.started) options.started(pid);
  ProgramResult result;
  Collect(pidfd.get(), out, err, options.timeout_s, &result);
  if (result.timed_out) kill(pid, SIGKILL);
  int status = 0;
  waitpid(pid, &status, 0);
  if (WIFEXITED(status)) result.exit_status = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) result.signal = WTERMSIG(status);
  return result;
}

TempDir::TempDir(const std::string& parent) : path_(parent + "/agentmon-test-XXXXXX") {
  if (mkdtemp(path_.data()) == nullptr) abort();
}

TempDir::~TempDir() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

bool WaitFor(const std::function<bool()>& done, int timeout_ms) {
  const auto deadline = SteadyClock::now() + std::chrono::milliseconds(timeout_ms);
  for (;;) {
    if (done()) return true;
    if (SteadyClock::now() >= deadline) return done();
    poll(nullptr, 0, 2);
  }
}

}  // namespace agentmon
