// Which daemon a command talks to: the system's, or one of the user's own. Never the user's in place of the
// system's because that one is not there at the moment.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace agentmon {

struct DaemonChoice {
  std::string socket;
  bool own = false;    // must run as the caller; else root is trusted as well
  bool waits = false;  // a system installation: `run` gives its daemon five seconds
  bool fell = false;   // nobody asked for the user's own daemon; it is all that there is
};

// Whether agentmon is installed for the whole system: its configuration or its socket unit is there.
bool IsInstalled(const std::string& root = "/");

// OK where the administrator lets users use daemons of their own (client.fallback); why not, in a sentence
// that says what to do. OK where nothing is installed.
absl::Status MayUseOwnDaemon(const std::string& root = "/");

// $XDG_RUNTIME_DIR/agentmon/agentmond.sock; empty where there is no such directory.
std::string OwnSocket();

// socket: of the --socket option, may be empty. user: --user was given.
absl::StatusOr<DaemonChoice> ChooseDaemon(const std::string& socket, bool user,
                                          const std::string& root = "/");

}  // namespace agentmon
