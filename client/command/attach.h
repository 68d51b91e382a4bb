// agentmon attach, and session attach: takes a running process and its descendants into a new session.
#pragma once

#include <string>
#include <vector>

#include "client/command/verb.h"

namespace agentmon {

struct AttachOptions {
  int pid = 0;
  std::string name;
  std::vector<std::string> labels;
  std::vector<std::string> policies;  // names or files; the first is the base
};

int Attach(const VerbContext& context, const AttachOptions& options);

}  // namespace agentmon
