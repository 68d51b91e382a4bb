#include "daemon/rpc/sessions_service.h"

#include <algorithm>

#include "common/base/log.h"
#include "daemon/rpc/event_access.h"

namespace agentmon {
namespace {

constexpr absl::Duration kStopMargin = absl::Seconds(15);
constexpr uint32_t kWatchBacklog =
    10'000;  // what was stored between the start of the watch and the first read

// False when the stream is to end: the client is gone, or the watched tree is.
bool SendWatched(grpc::ServerWriter<v1::WatchResponse>& writer, std::vector<Event> events, uint64_t gap) {
  v1::WatchResponse response;
  if (gap > 0) {
    response.set_gap(gap);
    if (!writer.Write(response)) return false;
  }
  for (Event& event : events) {
    const bool last = event.session_change().what() == v1::SessionChange::ENDED;
    response.mutable_event()->Swap(&event);
    if (!writer.Write(response) || last) return false;
  }
  return true;
}

}  // namespace

grpc::Status SessionsService::Start(grpc::ServerContext* context, const v1::StartRequest* request,
                                    v1::StartResponse* response) {
  return Unary<v1::StartResponse>(deps_, *context, Access::kUser, response, [&](const Caller& caller) {
    return CallCoreAsync<v1::StartResponse>(deps_.core, absl::Seconds(30),
                                            [this, caller, r = *request](CoreDone<v1::StartResponse> done) {
                                              deps_.manager.Start(caller, r, done);
                                            });
  });
}

grpc::Status SessionsService::Attach(grpc::ServerContext* context, const v1::AttachRequest* request,
                                     v1::AttachResponse* response) {
  return Unary<v1::AttachResponse>(deps_, *context, Access::kUser, response, [&](const Caller& caller) {
    return CallCoreAsync<v1::AttachResponse>(deps_.core, absl::Seconds(30),
                                             [this, caller, r = *request](CoreDone<v1::AttachResponse> done) {
                                               deps_.manager.Attach(caller, r, done);
                                             });
  });
}

// The caller is in its session by now: its right to this call and the next is the token, bound to its
// process.
grpc::Status SessionsService::Arm(grpc::ServerContext* context, const v1::ArmRequest* request,
                                  v1::ArmResponse* response) {
  return Unary<v1::ArmResponse>(deps_, *context, Access::kAnyone, response, [&](const Caller& caller) {
    return CallCore<v1::ArmResponse>(deps_.core,
                                     [this, caller, r = *request]() { return deps_.manager.Arm(caller, r); });
  });
}

grpc::Status SessionsService::Prove(grpc::ServerContext* context, const v1::ProveRequest* request,
                                    v1::ProveResponse* response) {
  return Unary<v1::ProveResponse>(deps_, *context, Access::kAnyone, response, [&](const Caller& caller) {
    return CallCoreAsync<v1::ProveResponse>(deps_.core, absl::Seconds(30),
                                            [this, caller, r = *request](CoreDone<v1::ProveResponse> done) {
                                              deps_.manager.Prove(caller, r, done);
                                            });
  });
}

grpc::Status SessionsService::Adopt(grpc::ServerContext* context, const v1::AdoptRequest* request,
                                    v1::AdoptResponse* response) {
  return Unary<v1::AdoptResponse>(deps_, *context, Access::kUser, response, [&](const Caller& caller) {
    return CallCoreAsync<v1::AdoptResponse>(deps_.core, absl::Seconds(30),
                                            [this, caller, r = *request](CoreDone<v1::AdoptResponse> done) {
                                              deps_.manager.Adopt(caller, r, done);
                                            });
  });
}

grpc::Status SessionsService::Watch(grpc::ServerContext* context, const v1::WatchRequest* request,
                                    grpc::ServerWriter<v1::WatchResponse>* writer) {
  const auto caller = Admitted(deps_, *context, Access::kUser);
  if (!caller.ok()) return ToGrpc(caller.status());
  const auto slot = deps_.streams.Take(caller->uid, "streams");
  if (!slot.ok()) return ToGrpc(slot.status());
  const auto session = CallCoreAsync<v1::Session>(
      deps_.core, absl::Seconds(30), [this, c = *caller, pid = request->pid()](CoreDone<v1::Session> done) {
        deps_.manager.StartWatch(c, pid, done);
      });
  if (!session.ok()) return ToGrpc(session.status());
  v1::WatchResponse first;
  *first.mutable_session() = *session;
  if (writer->Write(first)) {
    v1::EventFilter filter;
    filter.set_session(session->id());
    const absl::Status ended = FollowEvents(
        store_, hub_, filter, ViewerOf(*caller), kWatchBacklog,
        [&](std::vector<Event> events, uint64_t gap) { return SendWatched(*writer, std::move(events), gap); },
        [&] { return context->IsCancelled(); });
    if (!ended.ok()) LogDebug("watch: ", ended.message());
  }
  deps_.core.Post([this, id = session->id()] { deps_.manager.EndWatch(id); });
  return grpc::Status::OK;
}

grpc::Status SessionsService::Stop(grpc::ServerContext* context, const v1::StopRequest* request,
                                   v1::StopResponse* response) {
  return Unary<v1::StopResponse>(deps_, *context, Access::kUser, response, [&](const Caller& caller) {
    const absl::Duration grace = absl::Milliseconds(std::clamp<int64_t>(request->grace_ms(), 0, 600'000));
    return CallCoreAsync<v1::StopResponse>(deps_.core, grace + kStopMargin,
                                           [this, caller, r = *request](CoreDone<v1::StopResponse> done) {
                                             deps_.manager.Stop(caller, r, done);
                                           });
  });
}

grpc::Status SessionsService::SetPolicy(grpc::ServerContext* context, const v1::SetPolicyRequest* request,
                                        v1::SetPolicyResponse* response) {
  return Unary<v1::SetPolicyResponse>(deps_, *context, Access::kUser, response, [&](const Caller& caller) {
    return CallCoreAsync<v1::SetPolicyResponse>(
        deps_.core, absl::Seconds(30), [this, caller, r = *request](CoreDone<v1::SetPolicyResponse> done) {
          deps_.manager.SetPolicy(caller, r, done);
        });
  });
}

grpc::Status SessionsService::List(grpc::ServerContext* context, const v1::ListRequest* request,
                                   v1::ListResponse* response) {
  return Unary<v1::ListResponse>(
      deps_, *context, Access::kUser, response,
      [&](const Caller& caller) -> absl::StatusOr<v1::ListResponse> {
        const auto running = CallCore<std::vector<v1::Session>>(
            deps_.core, [this, caller]() -> absl::StatusOr<std::vector<v1::Session>> {
              return deps_.manager.List(caller);
            });
        if (!running.ok()) return running.status();
        v1::ListResponse list;
        for (const v1::Session& session : *running) *list.add_sessions() = session;
        if (!request->ended()) return list;
        const uint32_t limit = request->limit() == 0 ? 100 : std::min<uint32_t>(request->limit(), 10'000);
        const auto stored = store_.ListSessions(ViewerOf(caller), true, limit);
        if (!stored.ok()) return stored.status();
        for (const v1::Session& session : *stored) {
          const bool listed = std::any_of(running->begin(), running->end(),
                                          [&](const v1::Session& s) { return s.id() == session.id(); });
          if (!listed) *list.add_sessions() = session;
        }
        return list;
      });
}

grpc::Status SessionsService::Get(grpc::ServerContext* context, const v1::GetRequest* request,
                                  v1::GetResponse* response) {
  return Unary<v1::GetResponse>(
      deps_, *context, Access::kAnyone, response,
      [&](const Caller& caller) -> absl::StatusOr<v1::GetResponse> {
        v1::GetResponse answer;
        auto running = CallCore<v1::Session>(deps_.core, [this, caller, which = request->session()] {
          return deps_.manager.Get(caller, which);
        });
        if (!running.ok() && absl::IsNotFound(running.status()) && caller.role != Role::kAgent) {
          auto stored = store_.FindSession(request->session(), ViewerOf(caller));
          if (!stored.ok()) return absl::IsNotFound(stored.status()) ? running.status() : stored.status();
          *answer.mutable_session() = *stored;
          return answer;
        }
        if (!running.ok()) return running.status();
        *answer.mutable_session() = *running;
        return answer;
      });
}

}  // namespace agentmon
