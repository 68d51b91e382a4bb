#include "daemon/app/pipeline.h"

#include <utility>

#include "absl/time/time.h"
#include "common/base/log.h"

namespace agentmon {

Pipeline::Pipeline(TaskRunner& core, const Clock& clock, ProcessTree& tree, SessionOf session_of, Judge judge,
                   std::string pending_path)
    : core_(core),
      clock_(clock),
      tree_(tree),
      session_of_(std::move(session_of)),
      judge_(std::move(judge)),
      pending_(std::move(pending_path)) {}

Pipeline::~Pipeline() { *alive_ = false; }

void Pipeline::OnRecord(absl::Span<const uint8_t> record) {
  const int64_t boot_to_wall = absl::ToUnixNanos(clock_.Wall()) - clock_.BootNs();
  absl::StatusOr<Decoded> decoded = Decode(record, boot_to_wall);
  if (!decoded.ok()) {
    ++malformed_;
    return;
  }
  tree_.Learn(*decoded);
  Event& event = decoded->event;
  tree_.Stamp(&event, decoded->tid);
  event.set_session(session_of_(decoded->cgroup_id));
  if (event.session().empty()) {
    ++strays_;
    return;
  }
  if (!judge_(&*decoded)) return;  // by what it is, not by what is shown of it
  redactor_.Redact(&event);
  joiner_.OnEvent(std::move(event));
  StartTimer();
}

void Pipeline::OnEvent(const Event& event) { Deliver(event); }

void Pipeline::Deliver(const Event& event) {
  for (EventSink* sink : sinks_) sink->OnEvent(event);
}

void Pipeline::StartTimer() {
  if (timer_runs_ || (joiner_.idle() && folder_.keys() == 0)) return;
  timer_runs_ = true;
  core_.PostAfter(absl::Seconds(1), [this, alive = alive_] {
    if (!*alive) return;
    timer_runs_ = false;
    const int64_t now = clock_.BootNs();
    joiner_.Flush(now);
    folder_.Flush(now);
    KeepPending();
    StartTimer();
  });
}

void Pipeline::KeepPending() {
  if (kept_changes_ == folder_.changes()) return;
  kept_changes_ = folder_.changes();
  if (const absl::Status s = pending_.Keep(folder_.Pending()); !s.ok()) LogWarning(s.message());
}

void Pipeline::TakePending() {
  for (const Event& event : pending_.Take()) Deliver(event);
}

void Pipeline::EndSession(const std::string& session) {
  joiner_.EndSession(session);
  folder_.EndSession(session);
}

void Pipeline::EndAll() {
  joiner_.EndAll();
  folder_.EndAll();
  KeepPending();
}

}  // namespace agentmon
