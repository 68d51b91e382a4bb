// What every handler does first: who calls, may that role, is there room. gRPC threads.
#pragma once

#include <grpcpp/server_context.h>

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "daemon/rpc/call_limits.h"
#include "daemon/rpc/core_call.h"
#include "daemon/rpc/grpc_status.h"
#include "daemon/rpc/peers.h"
#include "daemon/session/session_manager.h"

namespace agentmon {

// Which roles a method is for. kAnyone is the allow-list of role agent: the method itself then narrows
// what is shown to the caller's own session.
enum class Access { kAnyone, kUser, kAdmin };

// Shared by the services; all of it outlives the server.
struct RpcDeps {
  TaskRunner& core;
  Peers& peers;
  SessionManager& manager;  // core thread only: reach it by CallCore
  Policies& policies;       // core thread only
  CallLimits calls{128};
  CallLimits streams{16};
};

// The caller, once its role was found sufficient.
absl::StatusOr<Caller> Admitted(const RpcDeps& deps, const grpc::ServerContext& context, Access access);

template <typename Response>
grpc::Status Unary(RpcDeps& deps, const grpc::ServerContext& context, Access access, Response* response,
                   const std::function<absl::StatusOr<Response>(const Caller&)>& call) {
  const absl::StatusOr<Caller> caller = Admitted(deps, context, access);
  if (!caller.ok()) return ToGrpc(caller.status());
  const auto slot = deps.calls.Take(caller->uid, "requests");
  if (!slot.ok()) return ToGrpc(slot.status());
  absl::StatusOr<Response> answer = call(*caller);
  if (!answer.ok()) return ToGrpc(answer.status());
  *response = std::move(*answer);
  return grpc::Status::OK;
}

}  // namespace agentmon
