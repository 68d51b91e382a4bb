// fake-agentmond SOCKET [--each]: the canned daemon as a program, for scripts. Ends on SIGTERM or SIGINT.
// With --each it has one event of each kind: what docs/events.md shows.
#include <signal.h>

#include <cstdio>
#include <string>

#include "tests/fake/fake_daemon.h"

int main(int argc, char** argv) {
  const bool each = argc == 3 && argv[2] == std::string("--each");
  if (argc != 2 && !each) {
    fprintf(stderr, "usage: fake-agentmond SOCKET [--each]\n");
    return 2;
  }
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGTERM);
  sigaddset(&ends, SIGINT);
  sigprocmask(SIG_BLOCK, &ends, nullptr);  // before gRPC makes threads
  agentmon::FakeDaemon daemon(argv[1]);
  {
    const std::lock_guard<std::mutex> lock(daemon.state().mutex);
    daemon.state().sessions = {agentmon::SampleSession()};
    daemon.state().events = each ? agentmon::EventOfEachKind() : agentmon::SampleEvents();
    daemon.state().status = agentmon::SampleStatus();
    daemon.state().verify.set_intact(true);
    daemon.state().adopt.mutable_session()->CopyFrom(agentmon::SampleSession());
    daemon.state().adopt.set_processes(2);
  }
  puts("ready");
  fflush(stdout);
  int signal;
  sigwait(&ends, &signal);
}
