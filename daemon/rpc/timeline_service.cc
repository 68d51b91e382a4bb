#include "daemon/rpc/timeline_service.h"

#include <utility>

#include "daemon/rpc/event_access.h"

namespace agentmon {

grpc::Status TimelineService::Query(grpc::ServerContext* context, const v1::QueryRequest* request,
                                    grpc::ServerWriter<v1::QueryResponse>* writer) {
  const auto caller = Admitted(deps_, *context, Access::kAnyone);
  if (!caller.ok()) return ToGrpc(caller.status());
  const auto slot = deps_.streams.Take(caller->uid, "streams");
  if (!slot.ok()) return ToGrpc(slot.status());
  QueryOptions query;
  query.filter = request->filter();
  query.limit = request->limit();
  query.cancelled = [context] { return context->IsCancelled(); };
  if (const absl::Status s = NarrowToCaller(*caller, &query.filter); !s.ok()) return ToGrpc(s);
  // An agent's own session may belong to another uid's name space (an adopted process of root's caller):
  // it is named exactly, so the owner does not matter.
  if (caller->role != Role::kAgent) query.viewer = ViewerOf(*caller);
  return ToGrpc(store_.Query(query, [writer](std::vector<Event> events) {
    v1::QueryResponse response;
    for (Event& event : events) response.add_events()->Swap(&event);
    return writer->Write(response);
  }));
}

grpc::Status TimelineService::Tail(grpc::ServerContext* context, const v1::TailRequest* request,
                                   grpc::ServerWriter<v1::TailResponse>* writer) {
  const auto caller = Admitted(deps_, *context, Access::kAnyone);
  if (!caller.ok()) return ToGrpc(caller.status());
  const auto slot = deps_.streams.Take(caller->uid, "streams");
  if (!slot.ok()) return ToGrpc(slot.status());
  v1::EventFilter filter = request->filter();
  if (const absl::Status s = NarrowToCaller(*caller, &filter); !s.ok()) return ToGrpc(s);
  const Viewer viewer = caller->role == Role::kAgent ? Viewer() : ViewerOf(*caller);
  return ToGrpc(FollowEvents(
      store_, hub_, filter, viewer, request->backlog(),
      [writer](std::vector<Event> events, uint64_t gap) {
        v1::TailResponse response;
        response.set_gap(gap);
        for (Event& event : events) response.add_events()->Swap(&event);
        return writer->Write(response);
      },
      [context] { return context->IsCancelled(); }));
}

grpc::Status TimelineService::Verify(grpc::ServerContext* context, const v1::VerifyRequest*,
                                     v1::VerifyResponse* response) {
  return Unary<v1::VerifyResponse>(deps_, *context, Access::kAdmin, response, [&](const Caller&) {
    return store_.Verify([context] { return context->IsCancelled(); });
  });
}

}  // namespace agentmon
