#pragma once

#include "agentmon/v1/timeline.grpc.pb.h"
#include "daemon/rpc/service.h"
#include "daemon/store/event_store.h"
#include "daemon/stream/stream_hub.h"

namespace agentmon {

class TimelineService final : public v1::Timeline::Service {
 public:
  TimelineService(RpcDeps& deps, EventStore& store, StreamHub& hub) : deps_(deps), store_(store), hub_(hub) {}

  grpc::Status Query(grpc::ServerContext* context, const v1::QueryRequest* request,
                     grpc::ServerWriter<v1::QueryResponse>* writer) override;
  grpc::Status Tail(grpc::ServerContext* context, const v1::TailRequest* request,
                    grpc::ServerWriter<v1::TailResponse>* writer) override;
  grpc::Status Verify(grpc::ServerContext* context, const v1::VerifyRequest* request,
                      v1::VerifyResponse* response) override;

 private:
  RpcDeps& deps_;
  EventStore& store_;
  StreamHub& hub_;
};

}  // namespace agentmon
