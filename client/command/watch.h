// agentmon watch: what a running process and its descendants do, while we look.
#pragma once

#include <string>

#include "client/command/verb.h"

namespace agentmon {

struct WatchOptions {
  int pid = 0;
  double duration = 0;  // seconds; 0 = until the process has ended or ^C
  std::string format = "table";
};

int Watch(const VerbContext& context, const WatchOptions& options);

}  // namespace agentmon
