// agentmon status: the daemon, its sources and its store.
#pragma once

#include "client/command/verb.h"

namespace agentmon {

struct StatusOptions {
  std::string format;  // table or json; --json is another way to say json
};

int Status(const VerbContext& context, const StatusOptions& options);

}  // namespace agentmon
