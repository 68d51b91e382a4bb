// One gRPC channel to the daemon, and what its errors mean to a person.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/connection/daemon_choice.h"
#include "common/base/watchdog.h"

namespace agentmon {

// How long a call may take that only looks something up.
inline constexpr absl::Duration kCallTime = absl::Seconds(10);
inline constexpr absl::Duration kCompileTime = absl::Seconds(40);  // of a call for which a policy is compiled

// The channel lives on one connected socket and does not reconnect.
absl::StatusOr<std::shared_ptr<grpc::Channel>> OpenChannel(const DaemonChoice& daemon);

void SetDeadline(grpc::ClientContext& context, absl::Duration time);

// For the time of a call that takes `call_time` at most: gRPC's deadline needs a thread of its own.
Watchdog::Options GrpcWatchdog(absl::Duration call_time, int exit_status, int err_fd);

struct Failure {
  int exit_status = 0;
  std::string message;  // one line, without the program's name
  std::string reason;   // the machine-readable cause (ErrorInfo.reason), often empty
};

// What Dial or OpenChannel answered.
Failure ConnectFailure(const absl::Status& status);
// What a call answered; takes message and hint from google.rpc.Status details where the daemon sent them.
Failure RpcFailure(const grpc::Status& status);

}  // namespace agentmon
