// Life of an event: decode, attribute, redact, join, fold, sinks. docs/architecture.md.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/task_runner.h"
#include "daemon/attribution/process_tree.h"
#include "daemon/event/event.h"
#include "daemon/event/flow_joiner.h"
#include "daemon/event/fold.h"
#include "daemon/event/record.h"
#include "daemon/event/redact.h"

namespace agentmon {

// Core thread, all of it.
class Pipeline : public RecordSink, public EventSink {
 public:
  // session_of: the id of the session that a record's cgroup means, empty when there is none (any more).
  using SessionOf = std::function<std::string(uint64_t cgroup_id)>;

  Pipeline(TaskRunner& core, const Clock& clock, ProcessTree& tree, SessionOf session_of,
           std::vector<EventSink*> sinks);
  ~Pipeline() override;

  void OnRecord(absl::Span<const uint8_t> record) override;
  // An event of the daemon's own, attributed already.
  void OnEvent(const Event& event) override;
  // Gives out what waits for one session that ends.
  void EndSession(const std::string& session);
  // Gives out everything that waits.
  void Flush();

  uint64_t malformed() const { return malformed_; }
  // Records of sessions that had ended by the time they were read.
  uint64_t strays() const { return strays_; }

 private:
  void Emit(const Event& event);
  void OnTimer();

  TaskRunner& core_;
  const Clock& clock_;
  ProcessTree& tree_;
  SessionOf session_of_;
  std::vector<EventSink*> sinks_;
  Redactor redactor_;
  Folder folder_;
  FlowJoiner joiner_;
  bool timer_runs_ = false;
  uint64_t malformed_ = 0;
  uint64_t strays_ = 0;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace agentmon
