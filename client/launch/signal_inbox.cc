#include "client/launch/signal_inbox.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>

#include "common/base/status.h"

namespace agentmon {
namespace {

std::atomic<int> g_inbox{-1};

constexpr int kCaught[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGTSTP, SIGTTIN, SIGTTOU};

bool IsIgnored(int signal) {
  struct sigaction action {};
  sigaction(signal, nullptr, &action);
  return action.sa_handler == SIG_IGN;
}

// Any thread. A full pipe (thousands of unread signals) drops the newest.
void OnSignal(int number, siginfo_t* info, void*) {
  const int saved = errno;
  const ReceivedSignal signal{number,
                              info->si_code <= 0};  // SI_USER is 0, SI_QUEUE and SI_TKILL are negative
  [[maybe_unused]] const ssize_t n = write(g_inbox, &signal, sizeof signal);
  errno = saved;
}

void SetMask(int how, int signal, sigset_t* old) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, signal);
  pthread_sigmask(how, &set, old);
}

}  // namespace

absl::StatusOr<std::unique_ptr<SignalInbox>> SignalInbox::Open() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return ErrnoStatus(errno, "make a pipe for signals");
  std::unique_ptr<SignalInbox> inbox(new SignalInbox(UniqueFd(ends[0]), UniqueFd(ends[1])));
  for (const int signal : kCaught) {
    if (!IsIgnored(signal)) Catch(signal);
  }
  return inbox;
}

SignalInbox::SignalInbox(UniqueFd read_end, UniqueFd write_end)
    : read_end_(std::move(read_end)), write_end_(std::move(write_end)) {
  g_inbox = write_end_.get();
}

// The handlers stay: they find no inbox, so that what arrives now is dropped. The caller is about to end.
SignalInbox::~SignalInbox() { g_inbox = -1; }

void SignalInbox::RestoreDefaults() {
  struct sigaction standard {};
  standard.sa_handler = SIG_DFL;
  for (const int signal : kCaught) {
    if (!IsIgnored(signal)) sigaction(signal, &standard, nullptr);
  }
}

void SignalInbox::Catch(int signal) {
  struct sigaction action {};
  action.sa_sigaction = OnSignal;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  sigfillset(&action.sa_mask);
  sigaction(signal, &action, nullptr);
}

void SignalInbox::CatchChildSignals() {
  for (const int signal : {SIGCHLD, SIGCONT}) {
    Catch(signal);
    SetMask(SIG_UNBLOCK, signal, nullptr);
  }
}

std::optional<ReceivedSignal> SignalInbox::Wait(absl::Time deadline) {
  while (true) {
    ReceivedSignal signal;
    if (read(read_end_.get(), &signal, sizeof signal) == sizeof signal) return signal;
    const absl::Duration left = std::min(deadline - absl::Now(), absl::Hours(1));
    if (left <= absl::ZeroDuration()) return std::nullopt;
    const int64_t milliseconds = absl::ToInt64Milliseconds(left) + 1;
    pollfd poll_fd{read_end_.get(), POLLIN, 0};
    poll(&poll_fd, 1, static_cast<int>(milliseconds));
  }
}

void SignalInbox::StopSelf(int stop_signal) {
  struct sigaction standard {
  }, old{};
  standard.sa_handler = SIG_DFL;
  if (stop_signal != SIGSTOP) sigaction(stop_signal, &standard, &old);
  sigset_t old_mask;
  SetMask(SIG_UNBLOCK, stop_signal, &old_mask);
  raise(stop_signal);
  pthread_sigmask(SIG_SETMASK, &old_mask, nullptr);
  if (stop_signal != SIGSTOP) sigaction(stop_signal, &old, nullptr);
}

void DieBy(int signal) {
  prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);  // a core_pattern with a pipe does not ask RLIMIT_CORE
  const rlimit no_core{0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  struct sigaction standard {};
  standard.sa_handler = SIG_DFL;
  sigaction(signal, &standard, nullptr);
  SetMask(SIG_UNBLOCK, signal, nullptr);
  kill(getpid(), signal);
  raise(signal);
  _exit(128 + signal);  // the first process of a pid namespace does not die by its own signals
}

}  // namespace agentmon
