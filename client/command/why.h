// agentmon why: what was stopped last, by which rule, and what would have been allowed.
#pragma once

#include <cstdint>

#include "client/command/verb.h"

namespace agentmon {

struct WhyOptions {
  uint32_t last = 1;
};

// Exit status 1 when nothing was stopped.
int Why(const VerbContext& context, const WhyOptions& options);

}  // namespace agentmon
