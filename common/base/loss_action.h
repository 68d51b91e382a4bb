// What becomes of a session when no daemon is there to answer for it: `on_daemon_loss` of a policy.
#pragma once

#include <cstdint>

namespace agentmon {

enum class LossAction : uint8_t { kNone = 0, kFreeze = 1, kKill = 2 };  // numbers of the holder's protocol

}  // namespace agentmon
