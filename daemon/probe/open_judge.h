// What is answered to a program that waits in open or exec, and what is recorded of it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "daemon/event/event.h"
#include "daemon/policy/gate.h"
#include "daemon/probe/caller.h"
#include "daemon/probe/exec_permits.h"
#include "daemon/probe/fanotify_group.h"
#include "daemon/probe/open_dedupe.h"
#include "daemon/probe/record_queue.h"

namespace agentmon {

// Where what is found goes; shared by all sessions and threads.
struct OpenRecords {
  std::shared_ptr<RecordQueue> queue;
  std::shared_ptr<OpenDedupe> dedupe;    // may be null
  std::shared_ptr<ExecPermits> permits;  // may be null: arguments are not known then
};

// Of one session; any thread, one event at a time. Judges the object that the kernel has found, not a name.
class OpenJudge {
 public:
  OpenJudge(uint64_t cgroup_id, std::shared_ptr<Gate> gate, OpenRecords records)
      : cgroup_id_(cgroup_id), gate_(std::move(gate)), records_(std::move(records)) {}

  // May it go on? Somebody waits for the answer.
  bool Decide(const FanotifyEvent& event, CallerIdentities& callers);
  // The same event once it is answered: it is recorded, and from now on the file is ignored by `group` where
  // no other answer is possible for it.
  void Finish(const FanotifyEvent& event, FanotifyGroup& group);
  // Only records it.
  void Tell(const FanotifyEvent& event);

 private:
  struct Asker {
    pid_t tid = 0;
    CallerIdentity identity;
    int64_t boot_ns = 0;
  };
  bool DecideOpen(const FanotifyEvent& event);
  bool DecideServedOpen(const FanotifyEvent& event);
  bool DecideList(const FanotifyEvent& event);
  bool DecideExec(const FanotifyEvent& event);
  Gate::Answer JudgeCopy(const FanotifyEvent& event, const ExecPermits::Use& use,
                         absl::Span<const absl::string_view> argv);
  void Record(const FanotifyEvent& event);
  bool StopOpen(const FanotifyEvent& event, uint32_t operations, Gate::Answer answer);  // false
  void KeepStop(Event event, Gate::Answer answer);

  const uint64_t cgroup_id_;
  const std::shared_ptr<Gate> gate_;
  const OpenRecords records_;
  // Of the event in hand.
  Asker asker_;
  std::shared_ptr<const policy::Snapshot> snapshot_;  // by which it was answered
  bool record_ = false;
  bool ignore_ = false;
  std::optional<Event> stopped_;
};

// The flags of the open(2) that a thread waits in, as the kernel has them in its registers; O_RDWR when it
// waits in something else, or its flags are not there.
int FlagsOfWaitingOpen(pid_t tid);

}  // namespace agentmon
