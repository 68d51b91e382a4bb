#include "client/launch/supervisor.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/str_cat.h"
#include "client/exit_status.h"
#include "common/base/status.h"

namespace agentmon {
namespace {

bool HasTerminal() {
  const UniqueFd terminal(open("/dev/tty", O_RDONLY | O_CLOEXEC | O_NOCTTY));
  return terminal.valid();
}

// Runs in a child that borrows our memory until it executes: system calls only. Returns when that failed.
int Execute(const char* program, char* const* argv, int token_fd, const sigset_t& mask) {
  SignalInbox::RestoreDefaults();
  if (fcntl(token_fd, F_SETFD, 0) != 0) return errno;
  pthread_sigmask(SIG_SETMASK, &mask, nullptr);
  execv(program, argv);
  return errno;
}

// 0, or an errno. Not posix_spawn: glibc's leaves the signals 32 and 33 ignored in a child of a program with
// threads. No signal can hit the child before its handlers are gone, so none that the terminal sends to both
// is lost.
int Spawn(const char* program, char* const* argv, int token_fd, pid_t* pid) {
  static volatile int error;  // the child writes it
  sigset_t everything, inherited;
  sigfillset(&everything);
  pthread_sigmask(SIG_SETMASK, &everything, &inherited);
  error = 0;
  *pid = vfork();
  if (*pid == 0) {
    error = Execute(program, argv, token_fd, inherited);
    _exit(kRunFailed);
  }
  if (*pid < 0) error = errno;
  if (*pid > 0 && error != 0) waitpid(*pid, nullptr, 0);
  pthread_sigmask(SIG_SETMASK, &inherited, nullptr);
  return error;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Supervisor>> Supervisor::Create() {
  absl::StatusOr<std::unique_ptr<SignalInbox>> inbox = SignalInbox::Open();
  if (!inbox.ok()) return inbox.status();
  return std::unique_ptr<Supervisor>(new Supervisor(std::move(*inbox)));
}

absl::Status Supervisor::Start(const std::vector<std::string>& programs, const ShimCall& call) {
  absl::Status status = absl::InternalError("no program to start");
  for (const std::string& program : programs) {
    const std::vector<std::string> arguments = ShimArguments(program, call);
    std::vector<char*> argv = PointersTo(arguments);
    const int error = Spawn(program.c_str(), argv.data(), call.token_fd, &agent_);
    if (error == 0) {
      inbox_->CatchChildSignals();
      return absl::OkStatus();
    }
    status = ErrnoStatus(error, absl::StrCat("execute ", program));
  }
  return status;
}

AgentEnd Supervisor::Wait(absl::Duration grace, const std::function<absl::Status()>& stop_session) {
  AgentEnd end;
  while (!Reap(&end)) {
    const absl::Time deadline = session_stopped_ ? absl::InfiniteFuture() : grace_ends_;
    if (const std::optional<ReceivedSignal> signal = inbox_->Wait(deadline)) {
      OnSignal(*signal, grace);
    } else if (!session_stopped_) {
      session_stopped_ = true;
      if (!stop_session().ok()) kill(agent_, SIGKILL);
    }
  }
  return end;
}

bool Supervisor::Reap(AgentEnd* end) {
  while (true) {
    siginfo_t info{};
    if (waitid(P_PID, static_cast<id_t>(agent_), &info, WEXITED | WSTOPPED | WCONTINUED | WNOHANG) != 0) {
      // The kernel reaped it itself: our caller ignores SIGCHLD and the shim ended before it had its token.
      *end = {false, kRunFailed};
      return true;
    }
    if (info.si_pid != agent_) return false;
    switch (info.si_code) {
      case CLD_STOPPED:
        StopWith(info.si_status);
        break;
      case CLD_CONTINUED:
        agent_is_stopped_ = false;
        break;
      case CLD_EXITED:
        *end = {false, info.si_status};
        return true;
      case CLD_KILLED:
      case CLD_DUMPED:
        *end = {true, info.si_status};
        return true;
      default:
        break;
    }
  }
}

// Our caller sees its job stop as it would see the agent stop. A SIGSTOP where there is no terminal is left
// alone: no shell would continue us, and whoever continues the agent would leave us behind.
void Supervisor::StopWith(int signal) {
  agent_is_stopped_ = true;
  if (signal == SIGSTOP && !HasTerminal()) return;
  inbox_->StopSelf(signal);
}

void Supervisor::OnSignal(const ReceivedSignal& signal, absl::Duration grace) {
  switch (signal.number) {
    case SIGCONT:
      if (agent_is_stopped_) kill(agent_, SIGCONT);
      return;
    case SIGHUP:
    case SIGTERM:
      kill(agent_, signal.number);
      grace_ends_ = std::min(grace_ends_, absl::Now() + grace);
      return;
    case SIGINT:
    case SIGQUIT:
    case SIGUSR1:
    case SIGUSR2:
      if (signal.from_process) kill(agent_, signal.number);
      return;
    default:
      return;  // CHLD wakes us up; the terminal's stop signals are the agent's to follow
  }
}

}  // namespace agentmon
