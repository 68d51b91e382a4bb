// Signals that arrive at us while an agent runs, as records to be read in order.
#pragma once

#include <signal.h>

#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/unique_fd.h"

namespace agentmon {

struct ReceivedSignal {
  int number = 0;
  bool from_process = false;  // sent by kill(2) and the like, not by a terminal or the kernel
};

// One at a time. Handlers take the place of default actions only: what our caller has ignored stays ignored,
// and is so for our children. A program that is executed gets default actions again (execve does that).
class SignalInbox {
 public:
  // Installs handlers for HUP, INT, QUIT, TERM, USR1, USR2, TSTP, TTIN and TTOU.
  static absl::StatusOr<std::unique_ptr<SignalInbox>> Open();
  ~SignalInbox();
  SignalInbox(const SignalInbox&) = delete;
  SignalInbox& operator=(const SignalInbox&) = delete;

  // Default actions in place of the handlers. System calls only, for a child between vfork and exec.
  static void RestoreDefaults();

  // Also CHLD and CONT, whatever our caller has set for them. After the child is started: it is to inherit
  // that.
  void CatchChildSignals();

  // The next signal; nullopt at the deadline.
  std::optional<ReceivedSignal> Wait(absl::Time deadline);

  // Stops this process by the default action of `stop_signal`; returns when it is continued, or at once when
  // the kernel refuses to stop a process group that no shell controls.
  void StopSelf(int stop_signal);

 private:
  SignalInbox(UniqueFd read_end, UniqueFd write_end);
  static void Catch(int signal);

  UniqueFd read_end_;
  UniqueFd write_end_;
};

// Ends this process as if `signal` had hit it, without a core dump. Does not return.
[[noreturn]] void DieBy(int signal);

}  // namespace agentmon
