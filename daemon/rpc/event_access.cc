#include "daemon/rpc/event_access.h"

#include <utility>

#include "common/base/refusal.h"
#include "common/base/status.h"

namespace agentmon {

Viewer ViewerOf(const Caller& caller) {
  if (caller.role == Role::kAdmin) return std::nullopt;
  return caller.uid;
}

absl::Status NarrowToCaller(const Caller& caller, v1::EventFilter* filter) {
  if (caller.role != Role::kAgent) return absl::OkStatus();
  if (caller.session.empty()) {
    return Refusal(absl::StatusCode::kPermissionDenied, "IN_A_SESSION",
                   "this process is inside a session of another daemon, or of none that is known");
  }
  const std::string& asked = filter->session();
  if (!asked.empty() && asked != "*" && asked != caller.session) {
    return Refusal(absl::StatusCode::kPermissionDenied, "IN_A_SESSION",
                   "a process inside a session sees the timeline of its own session only",
                   "leave --session out, or ask from a shell outside the session");
  }
  filter->set_session(caller.session);
  return absl::OkStatus();
}

absl::Status FollowEvents(EventStore& store, StreamHub& hub, v1::EventFilter filter, Viewer viewer,
                          uint32_t backlog, const Tail::Send& send, const std::function<bool()>& cancelled) {
  if (filter.session() != "*") {
    ASSIGN_OR_RETURN(const v1::Session session, store.FindSession(filter.session(), viewer));
    filter.set_session(session.id());
  }
  ASSIGN_OR_RETURN(std::unique_ptr<Subscriber> subscriber, hub.Subscribe(filter, viewer));
  Tail tail(std::move(subscriber));
  const Tail::Backlog stored = [&](uint64_t until_seq, const Tail::Give& give) {
    if (backlog == 0) return absl::OkStatus();
    QueryOptions query;
    query.filter = filter;
    query.viewer = viewer;
    query.limit = backlog;
    query.until_seq = until_seq;
    query.cancelled = cancelled;
    return store.Query(query, give);
  };
  return tail.Run(stored, send, cancelled);
}

}  // namespace agentmon
