// What agentmon's exit statuses mean. `run` exits as its agent does and uses kRunFailed for all of its own
// failures, so that none of them looks like the agent's.
#pragma once

namespace agentmon {

inline constexpr int kOk = 0;
inline constexpr int kNegative = 1;  // the answer is no, or there is no such thing
inline constexpr int kUsage = 2;
inline constexpr int kNoDaemon = 3;     // not reachable, or not to be trusted
inline constexpr int kRunFailed = 125;  // as env(1), timeout(1) and nohup(1) have it

}  // namespace agentmon
