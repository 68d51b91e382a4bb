// Judges the connects and sends of a session whose kernel asks nobody else about them, and performs what it
// lets go, on the caller's own socket: what was judged is what is reached. docs/enforcement.md, "Network
// rules without root".
#pragma once

#include <linux/seccomp.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "common/kernel/socket_calls.h"
#include "daemon/event/event.h"
#include "daemon/probe/call_waiters.h"
#include "daemon/probe/caller.h"
#include "daemon/probe/notify_pool.h"
#include "daemon/probe/record_queue.h"

namespace agentmon {

struct JudgedNetwork {
  NotifyAnswer answer;
  bool as_asked = false;
  std::vector<Event> events;  // none where `later`: these are told when the call is done
};

// What the threads share.
struct NetworkMeans {
  std::shared_ptr<CallWaiters> waiters;  // null: the kernel judges, and these calls are not ours
  std::shared_ptr<RecordQueue> queue;
};

class NetworkBroker {
 public:
  explicit NetworkBroker(NetworkMeans means) : means_(std::move(means)) {}
  bool active() const { return means_.waiters != nullptr; }

  // request: unanswered. Where nothing is stopped it goes on, and is described as it was asked.
  JudgedNetwork Handle(const SocketCall& call, const seccomp_notif& request, const Listener& listener,
                       const CallerIdentity& caller, int64_t boot_ns) const;

 private:
  const NetworkMeans means_;
};

}  // namespace agentmon
