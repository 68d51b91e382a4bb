// grpc.health.v1. Our own because the one of gRPC 1.51 brings two threads that wake up ten times a second.
#pragma once

#include "daemon/rpc/service.h"
#include "grpc/health/v1/health.grpc.pb.h"

namespace agentmon {

class HealthService final : public grpc::health::v1::Health::Service {
 public:
  explicit HealthService(RpcDeps& deps) : deps_(deps) {}

  // Serving when the core thread answers.
  grpc::Status Check(grpc::ServerContext* context, const grpc::health::v1::HealthCheckRequest* request,
                     grpc::health::v1::HealthCheckResponse* response) override {
    using Response = grpc::health::v1::HealthCheckResponse;
    return Unary<Response>(deps_, *context, Access::kAnyone, response,
                           [&](const Caller&) -> absl::StatusOr<Response> {
                             const std::string& name = request->service();
                             if (!name.empty() && name != "agentmon.v1.Sessions" &&
                                 name != "agentmon.v1.Timeline" && name != "agentmon.v1.Host") {
                               return absl::NotFoundError("no such service");
                             }
                             return CallCore<Response>(deps_.core, []() -> absl::StatusOr<Response> {
                               Response serving;
                               serving.set_status(Response::SERVING);
                               return serving;
                             });
                           });
  }
  // Watch is left to the base class: UNIMPLEMENTED, which the protocol allows and clients understand.

 private:
  RpcDeps& deps_;
};

}  // namespace agentmon
