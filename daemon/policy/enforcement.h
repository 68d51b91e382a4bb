// How each rule of a policy is enforced on this host, rule by rule.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "agentmon/v1/policy.pb.h"
#include "common/policy/snapshot.h"
#include "daemon/limits/limit_plan.h"
#include "daemon/policy/unmarked_mount.h"

namespace agentmon {

// What a session has to be stopped with.
struct SessionMeans {
  std::set<v1::Source> sources;         // active ones
  bool armed = false;                   // fanotify and notify ask before, and do not only tell
  std::set<std::string> controls;       // of the shim: "signal", "call.ptrace", ...
  std::vector<UnmarkedMount> unmarked;  // by fanotify
};

// All rules, defaults and keys that would stop or ask for something in a session that has these means and
// lacks these limits, outermost layer first; those of postures that only record are left out.
std::vector<v1::RuleEnforcement> ListEnforcement(const policy::Snapshot& snapshot, const SessionMeans& means,
                                                 const MissingLimits& missing);
// Those of layers that require enforcement and do not get it, in one line; empty = none.
std::string FindUnenforceable(const policy::Snapshot& snapshot,
                              const std::vector<v1::RuleEnforcement>& rules);
// How many of them, without the built-in ones, are recorded only, or not even seen.
struct Gap {
  uint32_t observed = 0, none = 0;
};
Gap GapOf(const std::vector<v1::RuleEnforcement>& rules);

}  // namespace agentmon
