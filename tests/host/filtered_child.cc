#include "tests/host/filtered_child.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/kernel/pid_fd.h"
#include "shim/stage/notify_filter.h"
#include "tests/host/program.h"

namespace agentmon {
namespace {

constexpr int kNoListener = -2;

[[noreturn]] void Child(int channel, const std::function<int()>& body, bool filter) {
  UniqueFd listener;
  int number = kNoListener;
  if (filter) {
    auto installed = InstallNotifyFilter();
    if (!installed.ok()) fprintf(stderr, "%s\n", std::string(installed.status().message()).c_str());
    if (installed.ok()) listener = std::move(*installed);
    number = listener.get();
  }
  char go;
  if (write(channel, &number, sizeof(number)) != sizeof(number) || number == -1) _exit(210);
  if (read(channel, &go, 1) != 1) _exit(211);
  listener.Reset();
  close(channel);
  _exit(body());
}

}  // namespace

FilteredChild::FilteredChild(const std::function<int()>& body, const std::function<void()>& before,
                             bool filter) {
  int channel[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, channel) != 0) abort();
  pid_ = fork();
  if (pid_ == 0) {
    close(channel[0]);
    if (before) before();
    Child(channel[1], body, filter);
  }
  close(channel[1]);
  go_ = UniqueFd(channel[0]);
  int number = -1;
  auto process = PidFd::Open(pid_);
  if (read(go_.get(), &number, sizeof(number)) != sizeof(number) || number == -1 || !process.ok()) abort();
  if (number == kNoListener) return;
  auto listener = process->TakeFd(number);
  if (!listener.ok()) abort();
  listener_ = std::move(*listener);
}

FilteredChild::~FilteredChild() {
  if (reaped_) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

void FilteredChild::Go() {
  if (write(go_.get(), "g", 1) != 1) abort();
}

void FilteredChild::Signal(int signal) const { kill(pid_, signal); }

bool FilteredChild::Ended() {
  if (!reaped_) reaped_ = waitpid(pid_, &status_, WNOHANG) == pid_;
  return reaped_;
}

int FilteredChild::Wait(int timeout_s) {
  if (!WaitFor([this] { return Ended(); }, timeout_s * 1000)) {
    kill(pid_, SIGKILL);
    waitpid(pid_, &status_, 0);
    reaped_ = true;
  }
  return WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_);
}

}  // namespace agentmon
