// One session as the manager holds it. Core thread.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/kernel/cgroup.h"
#include "daemon/session/session_manager.h"

namespace agentmon {

// Lengths of what a client gives, for Start and Adopt.
absl::Status CheckStartFields(const std::string& name, const std::string& workspace,
                              const google::protobuf::Map<std::string, std::string>& labels);
// What a client says of its session, without secrets.
void Describe(const std::string& name, const std::string& workspace,
              const google::protobuf::Map<std::string, std::string>& labels, v1::Session& session);
// As much of argv as is kept for display.
void SetCommand(v1::Session& session, const std::vector<std::string>& argv);

std::set<v1::Source> ActiveSources(const v1::Session& session);
// Those that were tried and held.
std::set<std::string> ActiveControls(const v1::Session& session);

// A refusal that names what cannot be enforced; ok when that is nothing.
absl::Status CheckEnforceable(const std::string& unenforceable);

struct SessionManager::SessionState {
  v1::Session info;
  std::optional<Cgroup> cgroup;  // none for a watched tree
  uint64_t cgroup_id = 0;        // of the cgroup, or the watch's number
  std::string token;             // until Arm, or Prove where Arm asks for it
  pid_t shim_pid = 0;            // who attached
  v1::ShimPlan plan;             // what it was told to do to itself, until it has proven it
  bool armed = false;
  bool frozen = false;            // for want of a daemon, until it is recovered
  bool judges_connects = false;   // the kernel, by the session's policy
  bool proof_required = false;    // no agent without it
  bool keeps_privileges = false;  // set-uid programs work in it: nobody is asked, the kernel's own rules hold
  pid_t client_pid = 0;           // of who asked for it
  bool tries_backstop = false;    // when it proves its controls
  UniqueFd client;                // pidfd of who asked for it, watched until its first process comes
  bool attaching = false;         // the migration is under way
  bool populated_once = false;
  bool ending = false;  // empty, its last records are awaited
  bool ended = false;
  std::string stopped_by;
  policy::ResourceLimits limits;          // as the policy has them
  MissingLimits missing_limits;           // of these
  SessionResources* resources = nullptr;  // the keeper's; none for a watched tree, and at the end
};

// Somebody who asked for an end and waits for it.
struct SessionManager::Waiter {
  std::vector<std::string> ids;  // in the answer
  size_t open = 0;
  Done<v1::StopResponse> done;
};

}  // namespace agentmon
