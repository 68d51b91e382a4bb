// The parent of an agent: invisible while the agent runs. It stops, continues and ends as the agent does.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/launch/shim.h"
#include "client/launch/signal_inbox.h"

namespace agentmon {

// How the agent ended.
struct AgentEnd {
  bool by_signal = false;
  int code = 0;  // exit status, or the signal's number
};

// Single-threaded use; the process may have other threads.
class Supervisor {
 public:
  // From here on signals are kept for the agent.
  static absl::StatusOr<std::unique_ptr<Supervisor>> Create();

  // Starts the first of `programs` that can be executed, in our process group, with the signal mask, the
  // ignored signals and all descriptors that we inherited, and of ours with call.token_fd only.
  absl::Status Start(const std::vector<std::string>& programs, const ShimCall& call);

  // Waits for the agent's end. HUP and TERM are passed on to it; when it lives on for `grace` after one,
  // `stop_session` is called once, and the agent is killed when that fails. What a process sends us by
  // kill(2) of INT, QUIT, USR1 and USR2 is passed on too; a terminal sends to the agent itself.
  AgentEnd Wait(absl::Duration grace, const std::function<absl::Status()>& stop_session);

 private:
  explicit Supervisor(std::unique_ptr<SignalInbox> inbox) : inbox_(std::move(inbox)) {}
  // True when the agent has ended; it must not be signalled any more.
  bool Reap(AgentEnd* end);
  void StopWith(int signal);
  void OnSignal(const ReceivedSignal& signal, absl::Duration grace);

  std::unique_ptr<SignalInbox> inbox_;
  pid_t agent_ = -1;
  bool agent_is_stopped_ = false;
  bool session_stopped_ = false;
  absl::Time grace_ends_ = absl::InfiniteFuture();
};

}  // namespace agentmon
