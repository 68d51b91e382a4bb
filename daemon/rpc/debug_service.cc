#include "daemon/rpc/debug_service.h"

#include <utility>

#include "common/base/refusal.h"

namespace agentmon {
namespace {

constexpr absl::Duration kPlanTime = absl::Seconds(30);

v1::NetworkPlanResponse ResponseOf(std::string commands) {
  v1::NetworkPlanResponse response;
  response.set_commands(std::move(commands));
  return response;
}

}  // namespace

grpc::Status DebugService::NetworkPlan(grpc::ServerContext* context, const v1::NetworkPlanRequest* request,
                                       v1::NetworkPlanResponse* response) {
  const Access access = request->apply() ? Access::kAdmin : Access::kUser;
  return Unary<v1::NetworkPlanResponse>(deps_, *context, access, response, [&](const Caller& caller) {
    return CallCoreAsync<v1::NetworkPlanResponse>(
        deps_.core, kPlanTime, [this, caller, r = *request](CoreDone<v1::NetworkPlanResponse> done) {
          if (r.has_policy()) {
            if (r.apply())
              return done(Refusal(absl::StatusCode::kInvalidArgument, "NO_SESSION",
                                  "a policy is applied to a session: 'agentmon session set-policy'"));
            return deps_.policies.Prepare(caller.uid, r.workspace(), r.policy(),
                                          [this, done](absl::StatusOr<Policies::PreparedPtr> prepared) {
                                            if (!prepared.ok()) return done(prepared.status());
                                            auto plan = plans_.of_policy(*(*prepared)->compiled.snapshot);
                                            if (!plan.ok()) return done(plan.status());
                                            done(ResponseOf(*std::move(plan)));
                                          });
          }
          const absl::StatusOr<uint64_t> cgroup_id = deps_.manager.CgroupOf(caller, r.session());
          if (!cgroup_id.ok()) return done(cgroup_id.status());
          plans_.of_session(*cgroup_id, r.apply(), [done](absl::StatusOr<std::string> plan) {
            if (!plan.ok()) return done(plan.status());
            done(ResponseOf(*std::move(plan)));
          });
        });
  });
}

}  // namespace agentmon
