#include "client/connection/connection.h"

#include <grpc/support/log.h>
#include <grpcpp/create_channel_posix.h>

#include <chrono>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "client/connection/socket.h"
#include "client/exit_status.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace agentmon {
namespace {

int ExitStatus(grpc::StatusCode code) {
  switch (code) {
    case grpc::StatusCode::UNAVAILABLE:
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return kNoDaemon;
    case grpc::StatusCode::INVALID_ARGUMENT:
      return kUsage;
    default:
      return kNegative;
  }
}

std::string PlainMessage(const grpc::Status& status) {
  switch (status.error_code()) {
    case grpc::StatusCode::UNAVAILABLE:
      return absl::StrCat("the connection to the daemon broke (", status.error_message(),
                          "): look at 'systemctl status agentmond'");
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return "the daemon did not answer in time: look at 'systemctl status agentmond'";
    case grpc::StatusCode::UNIMPLEMENTED:
      return "the daemon does not know this call: agentmon and agentmond are of different versions";
    default:
      return status.error_message().empty()
                 ? absl::StrCat("the daemon refused (code ", static_cast<int>(status.error_code()), ")")
                 : status.error_message();
  }
}

}  // namespace

absl::StatusOr<std::shared_ptr<grpc::Channel>> OpenChannel(const std::string& socket_path) {
  absl::StatusOr<UniqueFd> fd = Dial(socket_path);
  if (!fd.ok()) return fd.status();
  // gRPC's own log lines have no place on the user's terminal; who wants them sets GRPC_VERBOSITY.
  if (getenv("GRPC_VERBOSITY") == nullptr) gpr_set_log_function([](gpr_log_func_args*) {});
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(
      -1);  // the daemon is trusted, and an event can carry 64 KiB of arguments
  return grpc::CreateCustomInsecureChannelFromFd("agentmond", fd->Release(), arguments);
}

void SetDeadline(grpc::ClientContext& context, absl::Duration time) {
  context.set_deadline(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(time));
}

Failure ConnectFailure(const absl::Status& status) { return {kNoDaemon, std::string(status.message()), ""}; }

Failure RpcFailure(const grpc::Status& status) {
  Failure failure{ExitStatus(status.error_code()), PlainMessage(status), ""};
  google::rpc::Status details;
  if (status.error_details().empty() || !details.ParseFromString(status.error_details())) return failure;
  if (!details.message().empty()) failure.message = details.message();
  for (const google::protobuf::Any& any : details.details()) {
    google::rpc::ErrorInfo info;
    google::rpc::Help help;
    if (any.UnpackTo(&info)) failure.reason = info.reason();
    if (any.UnpackTo(&help) && help.links_size() > 0) {
      absl::StrAppend(&failure.message, ": ", help.links(0).description());
    }
  }
  return failure;
}

}  // namespace agentmon
