// gRPC's side of Debug.
#pragma once

#include <functional>
#include <string>

#include "agentmon/v1/debug.grpc.pb.h"
#include "daemon/rpc/core_call.h"
#include "daemon/rpc/service.h"

namespace agentmon {

class DebugService : public v1::Debug::Service {
 public:
  // Core thread.
  struct Plans {
    std::function<void(uint64_t cgroup_id, bool apply, CoreDone<std::string> done)> of_session;
    std::function<absl::StatusOr<std::string>(const policy::Snapshot& snapshot)> of_policy;
  };
  DebugService(RpcDeps& deps, Plans plans) : deps_(deps), plans_(std::move(plans)) {}

  grpc::Status NetworkPlan(grpc::ServerContext* context, const v1::NetworkPlanRequest* request,
                           v1::NetworkPlanResponse* response) override;

 private:
  RpcDeps& deps_;
  const Plans plans_;
};

}  // namespace agentmon
