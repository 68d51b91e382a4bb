#include "daemon/rpc/service.h"

#include "common/base/refusal.h"

namespace agentmon {

absl::StatusOr<Caller> Admitted(const RpcDeps& deps, const grpc::ServerContext& context, Access access) {
  absl::StatusOr<Caller> caller = deps.peers.CallerOf(context.peer());
  if (!caller.ok()) return caller;
  if (access != Access::kAnyone && caller->role == Role::kAgent) {
    return Refusal(absl::StatusCode::kPermissionDenied, "IN_A_SESSION",
                   "a process inside a session may not do this (role agent)",
                   "ask from a shell outside the session");
  }
  if (access == Access::kAdmin && caller->role != Role::kAdmin) {
    return Refusal(absl::StatusCode::kPermissionDenied, "NOT_ADMIN", "only an administrator may do this",
                   "ask as root or as a member of the admin group");
  }
  return caller;
}

}  // namespace agentmon
