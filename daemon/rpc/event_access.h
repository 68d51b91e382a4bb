// What of the timeline a caller sees, and following it.
#pragma once

#include <functional>
#include <vector>

#include "agentmon/v1/timeline.pb.h"
#include "daemon/session/caller.h"
#include "daemon/store/event_store.h"
#include "daemon/stream/stream_hub.h"
#include "daemon/stream/tail.h"

namespace agentmon {

// An admin sees all, others what belongs to their uid.
Viewer ViewerOf(const Caller& caller);

// Role agent sees its own session, whatever it asks for; PermissionDenied when which that is is not known.
absl::Status NarrowToCaller(const Caller& caller, v1::EventFilter* filter);

// The newest `backlog` stored events that match, then live ones, until `send` or `cancelled` ends it. The
// filter's session is resolved once, at the start.
absl::Status FollowEvents(EventStore& store, StreamHub& hub, v1::EventFilter filter, Viewer viewer,
                          uint32_t backlog, const Tail::Send& send, const std::function<bool()>& cancelled);

}  // namespace agentmon
