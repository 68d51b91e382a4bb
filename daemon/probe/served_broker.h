// File-changing calls on mounts behind a server: made by another process (CallMaker), while nobody but their
// caller waits.
#pragma once

#include <linux/seccomp.h>

#include <cstdint>
#include <memory>

#include "daemon/event/event.h"
#include "daemon/probe/call_maker.h"
#include "daemon/probe/call_waiters.h"
#include "daemon/probe/caller.h"
#include "daemon/probe/file_call.h"
#include "daemon/probe/notify_pool.h"
#include "daemon/probe/open_dedupe.h"
#include "daemon/probe/record_queue.h"
#include "daemon/probe/served_places.h"

namespace agentmon {

struct ServedMeans {
  std::shared_ptr<ServedPlaces> places;  // null: all calls are the file broker's
  std::shared_ptr<CallMaker> maker;
  std::shared_ptr<CallWaiters> waiters;
};

// One call, as it was copied out of its caller.
struct ServedCall {
  FileCall call;
  BrokeredCall brokered;
  CallerIdentity caller;
  int64_t boot_ns = 0;
};

// Any thread.
class ServedBroker {
 public:
  ServedBroker(ServedMeans means, std::shared_ptr<RecordQueue> queue, std::shared_ptr<OpenDedupe> dedupe)
      : means_(std::move(means)), queue_(std::move(queue)), dedupe_(std::move(dedupe)) {}

  // Whether a name leads to such a mount.
  bool Meets(const BrokeredCall& call, const CallerName& name) const;
  bool Meets(const BrokeredCall& call) const;
  // Answers later, and records it then; EAGAIN when too many wait.
  NotifyAnswer Begin(std::shared_ptr<const Listener> listener, const seccomp_notif& request,
                     ServedCall call) const;

 private:
  const ServedMeans means_;
  const std::shared_ptr<RecordQueue> queue_;
  const std::shared_ptr<OpenDedupe> dedupe_;
};

// What the policy says of a call whose names were looked up; `answer` is what has stopped it.
FileJudge JudgeOfGate(Gate& gate, pid_t tgid, Gate::Answer* answer);
// The event of a call that was stopped, without its judgement.
Event StoppedFileEvent(const FileCall& call, const BrokeredCall& brokered, const BrokerResult& result);
// The record of a call that went on, or was made.
FileRecord BrokeredRecord(const FileCall& call, const CallerIdentity& caller, int64_t boot_ns,
                          const BrokerResult& result);

}  // namespace agentmon
