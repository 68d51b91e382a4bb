// Life of an event: decode, attribute, judge, redact, join, fold, sinks. docs/architecture.md.
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
#include "daemon/event/pending_counts.h"
#include "daemon/event/record.h"
#include "daemon/event/redact.h"

namespace agentmon {

// Core thread, all of it.
class Pipeline : public RecordSink, public EventSink {
 public:
  // session_of: the id of the session that a record's cgroup means, empty when there is none (any more).
  using SessionOf = std::function<std::string(uint64_t cgroup_id)>;

  // Writes what the session's policy says into the record's event. False: it is none of the session's.
  using Judge = std::function<bool(Decoded* record)>;

  // pending_path: where counts that wait for the end of their window are kept once a second; empty = nowhere.
  Pipeline(TaskRunner& core, const Clock& clock, ProcessTree& tree, SessionOf session_of, Judge judge,
           std::string pending_path);
  ~Pipeline() override;
  void AddSink(EventSink* sink) { sinks_.push_back(sink); }
  // Gives out what a daemon that was killed had counted. After the sinks were added.
  void TakePending();

  void OnRecord(absl::Span<const uint8_t> record) override;
  // An event of the daemon's own, attributed already.
  void OnEvent(const Event& event) override;
  // Gives out what waits for one session that ends.
  void EndSession(const std::string& session);
  void EndAll();

  uint64_t malformed() const { return malformed_; }
  // Records of sessions that had ended by the time they were read.
  uint64_t strays() const { return strays_; }

 private:
  void Deliver(const Event& event);
  void StartTimer();  // runs only while something waits
  void KeepPending();

  TaskRunner& core_;
  const Clock& clock_;
  ProcessTree& tree_;
  SessionOf session_of_;
  Judge judge_;
  std::vector<EventSink*> sinks_;
  Redactor redactor_;
  // What comes out of the folder.
  struct Out : EventSink {
    explicit Out(Pipeline& pipeline) : pipeline(pipeline) {}
    void OnEvent(const Event& event) override { pipeline.Deliver(event); }
    Pipeline& pipeline;
  } out_{*this};
  Folder folder_{out_};
  FlowJoiner joiner_{[this](Event event) { folder_.OnEvent(event); }};
  PendingCounts pending_;
  uint64_t kept_changes_ = 0;
  bool timer_runs_ = false;
  uint64_t malformed_ = 0;
  uint64_t strays_ = 0;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace agentmon
