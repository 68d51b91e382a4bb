// Does one compiled rule match all that another one matches? May say no where it is yes.
#pragma once

#include "common/policy/command_index.h"
#include "common/policy/network_index.h"

namespace agentmon::policy {

bool CommandCovers(const CommandRule& outer, const CommandRule& inner);
bool NetworkCovers(const NetworkRule& outer, const NetworkRule& inner);

}  // namespace agentmon::policy
