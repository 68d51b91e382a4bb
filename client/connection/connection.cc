#include "client/connection/connection.h"

#include <google/protobuf/stubs/logging.h>
#include <grpc/support/log.h>
#include <grpcpp/create_channel_posix.h>

#include <chrono>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/connection/socket.h"
#include "client/exit_status.h"
#include "common/base/headroom.h"
#include "common/base/status.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace agentmon {
namespace {

int ExitStatus(grpc::StatusCode code) {
  switch (code) {
    case grpc::StatusCode::UNAVAILABLE:
    case grpc::StatusCode::CANCELLED:  // by a daemon that stops
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
    case grpc::StatusCode::CANCELLED:
      return absl::StrCat("the connection to the daemon broke (", status.error_message(),
                          "): ", WhereToLook());
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return absl::StrCat("the daemon did not answer in time: ", WhereToLook());
    case grpc::StatusCode::UNIMPLEMENTED:
      return "the daemon does not know this call: agentmon and agentmond are of different versions";
    default:
      return status.error_message().empty()
                 ? absl::StrCat("the daemon refused (code ", static_cast<int>(status.error_code()), ")")
                 : status.error_message();
  }
}

}  // namespace

absl::StatusOr<std::shared_ptr<grpc::Channel>> OpenChannel(const DaemonChoice& daemon) {
  // The first time with some to spare: whoever starts a session must be able to end it.
  static bool is_first = true;
  RETURN_IF_ERROR(CheckHeadroom(std::exchange(is_first, false) ? kGrpcClientAndMore : kGrpcClient));
  absl::StatusOr<UniqueFd> fd = Dial(daemon.socket, daemon.own);
  if (!fd.ok()) return fd.status();
  // Log lines of libraries have no place on the user's terminal; who wants them sets GRPC_VERBOSITY.
  if (getenv("GRPC_VERBOSITY") == nullptr) {
    gpr_set_log_function([](gpr_log_func_args*) {});
    google::protobuf::SetLogHandler(nullptr);
  }
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(
      -1);  // the daemon is trusted, and an event can carry 64 KiB of arguments
  return grpc::CreateCustomInsecureChannelFromFd("agentmond", fd->Release(), arguments);
}

Watchdog::Options GrpcWatchdog(absl::Duration call_time, int exit_status, int err_fd) {
  Watchdog::Options options;
  options.patience = call_time + absl::Seconds(3);  // gRPC's own deadline comes first, when it comes
  options.exit_status = exit_status;
  options.err_fd = err_fd;
  options.on_hang = absl::StrCat(
      "agentmon: no answer, and gRPC does not say why: this process may be short of threads or memory "
      "('ulimit "
      "-a' shows the limits), or the daemon hangs: ",
      WhereToLook(), "\n");
  options.on_abort =
      "agentmon: gRPC gave up: this process is probably short of descriptors, threads or memory: 'ulimit -a' "
      "shows the limits\n";
  return options;
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
