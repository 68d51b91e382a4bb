// A session as its proxy serves it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "daemon/policy/gate.h"
#include "daemon/proxy/proxy_door.h"
#include "daemon/resolver/question_limits.h"

namespace agentmon {

// What a proxy must know of a session.
struct ProxiedSession {
  uint64_t cgroup_id = 0;
  std::shared_ptr<Gate> gate;                   // of its policy
  std::function<std::vector<pid_t>()> members;  // processes that are known to be in it; any thread
  bool had_proxy = false;                       // who began it has a proxy of its own in its environment
};

// The loop's thread.
struct ProxySession {
  ProxiedSession of;
  ProxyDoor door;
  QuestionLimits limits;
};

// Who is at the other end of a connection.
struct ProxyPeer {
  pid_t pid = 0;  // 0 = not known
  uid_t uid = 0;
};

}  // namespace agentmon
