#include "client/command/debug.h"

#include "absl/strings/str_split.h"
#include "agentmon/v1/debug.grpc.pb.h"
#include "client/exit_status.h"
#include "client/policy/policy_cli.h"

namespace agentmon {

int DebugNetworkPlan(const VerbContext& context, const DebugOptions& options, bool apply) {
  v1::NetworkPlanRequest request;
  request.set_session(options.session);
  request.set_apply(apply);
  if (!options.policies.empty()) {
    const policy_cli::PolicyContext here = policy_cli::ContextOfProcess();
    const auto choice = policy_cli::MakeChoice(here, options.policies);
    if (!choice.ok()) return context.FailLines(kUsage, choice.status().message());
    *request.mutable_policy() = *choice;
    request.set_workspace(here.workspace);
  }
  int exit_status = kOk;
  const auto channel = context.Connect(&exit_status);
  if (channel == nullptr) return exit_status;
  v1::NetworkPlanResponse response;
  const auto stub = v1::Debug::NewStub(channel);
  const grpc::Status status = context.Ask(
      kCallTime, [&](grpc::ClientContext* call) { return stub->NetworkPlan(call, request, &response); });
  if (!status.ok()) return context.FailRpc(status);
  for (const absl::string_view line : absl::StrSplit(response.commands(), '\n', absl::SkipEmpty()))
    context.output->Line(std::string(line));
  return kOk;
}

}  // namespace agentmon
