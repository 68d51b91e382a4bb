// agentmon why: what was stopped last, by which rule, and what would have been allowed.
#pragma once

#include <cstdint>
#include <string>

#include "client/command/verb.h"

namespace agentmon {

struct WhyOptions {
  std::string session;  // id, beginning of an id, or name; empty: all that the caller may see
  uint32_t last = 1;
};

// Exit status 1 when nothing was stopped.
int Why(const VerbContext& context, const WhyOptions& options);

}  // namespace agentmon
