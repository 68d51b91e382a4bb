#pragma once

#include "agentmon/v1/policy.grpc.pb.h"
#include "daemon/rpc/service.h"

namespace agentmon {

// Roles: user and admin; Reload: admin.
class PolicyService final : public v1::Policy::Service {
 public:
  explicit PolicyService(RpcDeps& deps) : deps_(deps) {}

  grpc::Status List(grpc::ServerContext* context, const v1::ListPoliciesRequest* request,
                    v1::ListPoliciesResponse* response) override;
  grpc::Status Get(grpc::ServerContext* context, const v1::GetPolicyRequest* request,
                   v1::GetPolicyResponse* response) override;
  grpc::Status Validate(grpc::ServerContext* context, const v1::ValidatePolicyRequest* request,
                        v1::ValidatePolicyResponse* response) override;
  grpc::Status Explain(grpc::ServerContext* context, const v1::ExplainPolicyRequest* request,
                       v1::ExplainPolicyResponse* response) override;
  grpc::Status Reload(grpc::ServerContext* context, const v1::ReloadPoliciesRequest* request,
                      v1::ReloadPoliciesResponse* response) override;

 private:
  RpcDeps& deps_;
};

}  // namespace agentmon
