#pragma once

#include "agentmon/v1/sessions.grpc.pb.h"
#include "daemon/rpc/service.h"
#include "daemon/store/event_store.h"
#include "daemon/stream/stream_hub.h"

namespace agentmon {

class SessionsService final : public v1::Sessions::Service {
 public:
  SessionsService(RpcDeps& deps, EventStore& store, StreamHub& hub) : deps_(deps), store_(store), hub_(hub) {}

  grpc::Status Start(grpc::ServerContext* context, const v1::StartRequest* request,
                     v1::StartResponse* response) override;
  grpc::Status Attach(grpc::ServerContext* context, const v1::AttachRequest* request,
                      v1::AttachResponse* response) override;
  grpc::Status Arm(grpc::ServerContext* context, const v1::ArmRequest* request,
                   v1::ArmResponse* response) override;
  grpc::Status Prove(grpc::ServerContext* context, const v1::ProveRequest* request,
                     v1::ProveResponse* response) override;
  grpc::Status Adopt(grpc::ServerContext* context, const v1::AdoptRequest* request,
                     v1::AdoptResponse* response) override;
  grpc::Status Watch(grpc::ServerContext* context, const v1::WatchRequest* request,
                     grpc::ServerWriter<v1::WatchResponse>* writer) override;
  grpc::Status Stop(grpc::ServerContext* context, const v1::StopRequest* request,
                    v1::StopResponse* response) override;
  grpc::Status SetPolicy(grpc::ServerContext* context, const v1::SetPolicyRequest* request,
                         v1::SetPolicyResponse* response) override;
  grpc::Status List(grpc::ServerContext* context, const v1::ListRequest* request,
                    v1::ListResponse* response) override;
  grpc::Status Get(grpc::ServerContext* context, const v1::GetRequest* request,
                   v1::GetResponse* response) override;

 private:
  RpcDeps& deps_;
  EventStore& store_;
  StreamHub& hub_;
};

}  // namespace agentmon
