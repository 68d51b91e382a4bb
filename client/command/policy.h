// agentmon policy: what needs the daemon. The other verbs work on files alone: client/policy.
#pragma once

#include <string>
#include <vector>

#include "client/command/verb.h"
#include "client/policy/policy_cli.h"

namespace agentmon {

struct PolicyOptions {
  std::vector<std::string> files;     // names or files
  std::vector<std::string> policies;  // --policy
  std::string session;
  policy_cli::LintOptions lint;
  policy_cli::TestOptions test;
  policy_cli::ExplainOptions explain;
};

int PolicyList(const VerbContext& context);                               // of the daemon
int PolicyGet(const VerbContext& context, const PolicyOptions& options);  // layers of a session
int PolicyExplainSession(const VerbContext& context, const PolicyOptions& options);
int PolicyReload(const VerbContext& context);
// Writes a first policy of the user's own, where each session of theirs finds it.
int PolicySetup(const VerbContext& context);

}  // namespace agentmon
