#include "client/command/status.h"

#include <nlohmann/json.hpp>

#include "absl/time/clock.h"
#include "agentmon/v1/host.grpc.pb.h"
#include "client/exit_status.h"
#include "client/output/event_json.h"
#include "client/output/session_output.h"

namespace agentmon {

int Status(const VerbContext& context, const StatusOptions& options) {
  int exit_status = kOk;
  const auto channel = context.Connect(&exit_status);
  if (channel == nullptr) return exit_status;
  v1::StatusResponse response;
  const auto stub = v1::Host::NewStub(channel);
  const grpc::Status status =
      context.Ask(kCallTime, [&](grpc::ClientContext* call) { return stub->Status(call, {}, &response); });
  if (!status.ok()) return context.FailRpc(status);
  if (context.json || options.format == "json") {
    context.output->Line(DumpJson(StatusToJson(response), 2));
  } else {
    WriteStatus(response, absl::Now(), context.paint(), *context.output);
  }
  return kOk;
}

}  // namespace agentmon
