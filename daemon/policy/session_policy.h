// What one session is judged by: its choice, its user, root's library -> a compiled snapshot.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "agentmon/v1/policy.pb.h"
#include "common/policy/snapshot.h"
#include "daemon/policy/policy_library.h"

namespace agentmon {

struct PolicyOwner {
  uid_t uid = 0;
  std::string user, home;
  std::vector<gid_t> groups;
};
// From the user database, which may ask the network: not on the core thread. A uid without an entry is its
// own name and has no home.
PolicyOwner LookUpOwner(uid_t uid);

struct PolicyRequest {
  v1::PolicyChoice choice;
  std::string workspace;  // absolute
  PolicyOwner owner;
};

// Where this daemon keeps its own things, which no policy opens.
struct OwnPaths {
  std::string state_dir, runtime_dir, config_dir = "/etc/agentmon";
};

struct CompiledPolicy {
  std::shared_ptr<const policy::Snapshot> snapshot;  // null: diagnostics have errors
  policy::Diagnostics diagnostics;
  size_t sent_patterns = 0;  // in the documents of the choice, alternatives counted
  // Of the document that each layer but the built-in one comes from, outermost first.
  std::vector<policy::LayerInput> layers;
};

// Limits on what a client may send: 64 documents, 4 MiB, 20,000 patterns once alternatives are counted.
CompiledPolicy CompileSessionPolicy(const PolicyLibrary& library, const PolicyRequest& request,
                                    const OwnPaths& own);
// What holds where that failed and something must: the floor, and a base that allows reads only.
std::shared_ptr<const policy::Snapshot> ClosedSnapshot(const PolicyLibrary& library,
                                                       const PolicyRequest& request, const OwnPaths& own);

// "BAD_POLICY" with the first errors.
absl::Status PolicyRefusal(const policy::Diagnostics& diagnostics);

// What takes effect only when a program starts, and differs: the environment, system calls refused by
// seccomp, isolation. One line each; empty = a running session can be given the new one.
std::vector<std::string> NeedsNewSession(const policy::Snapshot& running, const policy::Snapshot& wanted);

}  // namespace agentmon
