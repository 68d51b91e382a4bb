// What a session's shim does to itself, from the session's policy.
#pragma once

#include <string>

#include "agentmon/v1/sessions.pb.h"
#include "common/policy/snapshot.h"

namespace agentmon {

// The control that opens are judged by programs on the hooks of security modules.
constexpr char kLsmControl[] = "lsm_open";
// And changes of files.
constexpr char kLsmChangeControl[] = "lsm_change";
// And connects to unix sockets.
constexpr char kLsmUnixControl[] = "lsm_unix";
// And signals to processes outside of the session.
constexpr char kLsmSignalControl[] = "lsm_signal";

// The control that connects and sends are judged where they are asked, and made by who judges them.
constexpr char kNetworkCallsControl[] = "network_calls";

// The control that calls on unix sockets are judged, and that none passes unjudged.
constexpr char kUnixControl[] = "unix";
// Of these sockets the first is stopped by who judges, the others are let go unjudged, for the kernel to
// stop.
struct UnixCanaries {
  std::string path, name;  // the name is abstract, "@..."
  std::string Datagrams() const { return name + "-datagrams"; }
};

struct ShimPlanOptions {
  bool fanotify_backend = false;  // marks on mounts judge files: mounts of the session's own would have none
  bool broker_alone = false;      // or no marks do, but the broker, which knows its own mounts only
  bool root = false;              // uid 0, which keeps what ordinary work on files needs
  bool lsm_backend = false;       // programs on the hooks of security modules judge files
  bool keep_privileges = false;   // set-uid programs are to work, and those programs alone hold the session
  int landlock_abi = 0;           // of this kernel
  std::string canary_file = "";   // one that no session may open and everybody else may read; may be empty
  bool network_backend = false;   // the kernel judges connects by the session's policy
  bool network_calls = false;     // or who is asked before each call does
  bool lsm_sockets = false;       // they judge unix sockets as well
  bool lsm_signals = false;       // and signals, and there is a process outside whom one would reach
  std::string lsm_canary_file = "";  // the same; these programs let the first one through
  bool unix_backend = false;         // calls on unix sockets can be judged, where the hooks do not
  UnixCanaries unix_canaries = {};   // empty names: nothing proves it
};

// Layers that only record have no part in it, and where all do, nothing is unset, closed or refused; what a
// policy injects into the environment is set all the same. Pure.
v1::ShimPlan MakeShimPlan(const policy::Snapshot& snapshot, const ShimPlanOptions& options);

// The control that the session's proxy judges what its programs ask it for.
constexpr char kProxyControl[] = "proxy";

// Does something in the policy stop connections?
bool StopsConnections(const policy::Snapshot& snapshot);

// Does something in the policy stop calls on unix sockets, or on those of services that answer for names?
bool StopsUnixSockets(const policy::Snapshot& snapshot);

// Does a layer that stops things want no session in which it cannot?
bool RequiresEnforcement(const policy::Snapshot& snapshot);

}  // namespace agentmon
