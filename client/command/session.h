// agentmon session list, show, stop and set-policy.
#pragma once

#include <string>
#include <vector>

#include "client/command/verb.h"

namespace agentmon {

struct SessionOptions {
  std::string id;
  bool all = false;                   // list: also ended ones; stop: every one
  std::vector<std::string> policies;  // set-policy: names or files; the first is the base
  double grace = 3;                   // seconds between TERM and the kill
};

int SessionList(const VerbContext& context, const SessionOptions& options);
int SessionShow(const VerbContext& context, const SessionOptions& options);
int SessionStop(const VerbContext& context, const SessionOptions& options);
int SessionSetPolicy(const VerbContext& context, const SessionOptions& options);

}  // namespace agentmon
