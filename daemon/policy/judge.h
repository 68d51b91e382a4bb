// What a session's policy says of an event, written into the event.
#pragma once

#include <sys/types.h>

#include <optional>
#include <vector>

#include "common/base/clock.h"
#include "common/policy/snapshot.h"
#include "common/policy/subject.h"
#include "daemon/attribution/process_tree.h"
#include "daemon/event/event.h"
#include "daemon/policy/session_terminals.h"
#include "daemon/policy/trusted_directories.h"

namespace agentmon {

// What judging must know of a session besides its policy.
struct JudgedSession {
  pid_t first_process = 0;
  std::vector<gid_t> groups;  // of its user
  SessionTerminals terminals;
};

// The act of a CONNECT or SEND event; nullopt for others.
std::optional<policy::Subject> NetworkSubject(const Event& event);

// Core thread.
class Judge {
 public:
  Judge(const Clock& clock, const ProcessTree& tree) : trusted_(clock), tree_(tree) {}

  // The event is attributed already, and not redacted yet. Events of which no rule speaks (fork, exit, what
  // the daemon itself tells) stay without a judgement. What a default allows is marked as allowed and
  // nothing more: most events are that. went_through: the kernel has judged it and let it go, so that no
  // denial can be true of it.
  void Apply(const policy::Snapshot& snapshot, JudgedSession& session, Event* event,
             bool went_through = false);

 private:
  int DepthOf(const Event& event, pid_t first_process) const;

  TrustedDirectories trusted_;
  const ProcessTree& tree_;
};

}  // namespace agentmon
