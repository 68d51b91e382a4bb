// absl::Status to gRPC's, with google.rpc.Status details (reason, hint) in the trailer.
#pragma once

#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace agentmon {

grpc::Status ToGrpc(const absl::Status& status);

}  // namespace agentmon
