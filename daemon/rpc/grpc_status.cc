#include "daemon/rpc/grpc_status.h"

#include <string>

#include "common/base/refusal.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace agentmon {

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  const std::string message(status.message());
  google::rpc::Status rich;
  rich.set_code(static_cast<int>(status.code()));
  rich.set_message(message);
  if (const auto reason = status.GetPayload(kReasonPayload)) {
    google::rpc::ErrorInfo info;
    info.set_reason(std::string(*reason));
    info.set_domain("agentmon");
    rich.add_details()->PackFrom(info);
  }
  if (const auto hint = status.GetPayload(kHintPayload)) {
    google::rpc::Help help;
    help.add_links()->set_description(std::string(*hint));
    rich.add_details()->PackFrom(help);
  }
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), message, rich.SerializeAsString());
}

}  // namespace agentmon
