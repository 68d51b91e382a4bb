#pragma once

#include <functional>

#include "agentmon/v1/host.grpc.pb.h"
#include "daemon/rpc/service.h"

namespace agentmon {

class HostService final : public v1::Host::Service {
 public:
  // `status` fills in what holds for every caller; core thread.
  using FillStatus = std::function<v1::StatusResponse()>;
  HostService(RpcDeps& deps, FillStatus status) : deps_(deps), status_(std::move(status)) {}

  grpc::Status Status(grpc::ServerContext* context, const v1::StatusRequest*,
                      v1::StatusResponse* response) override {
    return Unary<v1::StatusResponse>(
        deps_, *context, Access::kAnyone, response, [this](const Caller& caller) {
          return CallCore<v1::StatusResponse>(
              deps_.core, [this, caller]() -> absl::StatusOr<v1::StatusResponse> {
                v1::StatusResponse status = status_();
                status.set_role(std::string(RoleName(caller.role)));
                if (caller.role == Role::kAgent) {
                  status.set_sessions(caller.session.empty() ? 0 : 1);
                  return status;
                }
                for (const v1::Session& session : deps_.manager.List(caller)) {
                  status.set_sessions(status.sessions() + 1);
                  if (session.policy().not_enforced() > 0)
                    status.set_sessions_not_enforced(status.sessions_not_enforced() + 1);
                }
                return status;
              });
        });
  }

 private:
  RpcDeps& deps_;
  FillStatus status_;
};

}  // namespace agentmon
