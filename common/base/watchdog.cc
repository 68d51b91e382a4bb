#include "common/base/watchdog.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace agentmon {
namespace {

// What the handlers say: no allocation may be needed for it.
struct LastWords {
  int exit_status, err_fd;
  char on_hang[512], on_abort[512];
} g_words;

void Copy(const std::string& text, char (&to)[512]) {
  const size_t size = std::min(text.size(), sizeof to - 1);
  std::memcpy(to, text.data(), size);
  to[size] = '\0';
}

// Not SIGALRM: a caller's alarm, which execve() keeps, is the agent's.
int AlarmSignal() { return SIGRTMAX; }

void OnSignal(int number) {
  const char* words = number == SIGABRT ? g_words.on_abort : g_words.on_hang;
  [[maybe_unused]] const ssize_t n = write(g_words.err_fd, words, strlen(words));
  _exit(g_words.exit_status);
}

}  // namespace

Watchdog::Watchdog(const Options& options) {
  g_words.exit_status = options.exit_status;
  g_words.err_fd = options.err_fd;
  Copy(options.on_hang, g_words.on_hang);
  Copy(options.on_abort, g_words.on_abort);
  struct sigaction action {};
  action.sa_handler = OnSignal;
  sigaction(SIGABRT, &action, &old_abort_);
  sigaction(AlarmSignal(), &action, &old_alarm_);
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, AlarmSignal());
  pthread_sigmask(SIG_UNBLOCK, &set, &old_mask_);
  if (options.patience == absl::InfiniteDuration()) return;
  sigevent event{};
  event.sigev_notify = SIGEV_SIGNAL;
  event.sigev_signo = AlarmSignal();
  has_timer_ = timer_create(CLOCK_MONOTONIC, &event, &timer_) == 0;
  itimerspec when{};
  when.it_value = absl::ToTimespec(std::max(options.patience, absl::Milliseconds(1)));
  if (has_timer_) timer_settime(timer_, 0, &when, nullptr);
}

Watchdog::~Watchdog() {
  if (has_timer_) timer_delete(timer_);
  pthread_sigmask(SIG_SETMASK, &old_mask_, nullptr);
  sigaction(AlarmSignal(), &old_alarm_, nullptr);
  sigaction(SIGABRT, &old_abort_, nullptr);
}

}  // namespace agentmon
