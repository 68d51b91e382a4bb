// One call on a socket that is made in a caller's place.
#pragma once

#include <linux/seccomp.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "daemon/event/event.h"
#include "daemon/probe/caller.h"
#include "daemon/probe/caller_socket.h"
#include "daemon/probe/notify_pool.h"
#include "daemon/probe/socket_message.h"

namespace agentmon {

// One thread at a time. The caller waits as long as there is no answer.
class SocketWork {
 public:
  SocketWork(const SocketCall& call, const seccomp_notif& request, std::shared_ptr<const Listener> listener,
             const CallerIdentity& caller, CallerSocket socket);

  // -errno or the value of the call. Without may_block -EAGAIN is no end of it: it goes on with the next Run.
  int64_t Run(bool may_block);
  // Whether the kernel would make the caller wait where Run has answered -EAGAIN.
  bool MayWait() const;
  // What the program sees of a call that a signal has ended.
  int Interrupted() const;
  // Of all that was done and stopped, in order, once it is answered; result: the answer.
  std::vector<Event> TakeEvents(int64_t result);

 private:
  int64_t Connect();
  int64_t Send(bool may_block);
  int64_t SendMany(bool may_block);
  int ReadNext();
  int Judge(bool connects);
  int JudgeOther();
  int TakeControl();
  int Deny(Event event, v1::Judgement judgement);
  int CannotCarry(const char* what);
  int NameInCallersView();
  int64_t SendOne(bool may_block);
  int Flags() const;
  void Tell(int64_t result);

  const SocketCall& call_;
  const seccomp_notif request_;
  const std::shared_ptr<const Listener> listener_;
  const CallerIdentity caller_;
  const CallerSocket socket_;
  const pid_t tid_;
  SocketMessage message_;
  bool prepared_ = false;  // message_ is read and judged
  uint64_t sent_ = 0;      // messages of many
  UniqueFd directory_;     // that a name of a unix socket begins at
  std::vector<UniqueFd> passed_;
  Event event_;  // of the message in hand; no kind = nothing to tell
  std::vector<Event> events_;
};

}  // namespace agentmon
