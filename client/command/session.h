// agentmon session list, show and stop.
#pragma once

#include <string>

#include "client/command/verb.h"

namespace agentmon {

struct SessionOptions {
  std::string id;
  bool all = false;  // list: also ended ones; stop: every one
  double grace = 3;  // seconds between TERM and the kill
};

int SessionList(const VerbContext& context, const SessionOptions& options);
int SessionShow(const VerbContext& context, const SessionOptions& options);
int SessionStop(const VerbContext& context, const SessionOptions& options);

}  // namespace agentmon
