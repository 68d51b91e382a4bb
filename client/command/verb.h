// What every verb has at hand.
#pragma once

#include <grpcpp/support/status.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/connection/connection.h"
#include "client/exit_status.h"
#include "client/output/color.h"
#include "client/output/output.h"

namespace agentmon {

struct VerbContext {
  std::string socket;                // --socket as given
  bool user = false;                 // --user: the user's own daemon
  std::string color = "auto";        // --color
  bool json = false;                 // --json
  std::vector<std::string> command;  // what stands behind the first "--"
  bool has_command = false;
  Output* output = nullptr;
  int err_fd = 2;

  Paint paint() const { return Paint(UseColor(color, *output)); }
  // One line on standard error; returns `exit_status`.
  int Fail(int exit_status, absl::string_view message) const;
  // The same for a message of several lines.
  int FailLines(int exit_status, absl::string_view message) const;
  int Fail(const Failure& failure) const { return Fail(failure.exit_status, failure.message); }
  int FailRpc(const grpc::Status& status) const { return Fail(RpcFailure(status)); }
  // Whom to talk to; why nobody.
  absl::StatusOr<DaemonChoice> Daemon() const { return ChooseDaemon(socket, user); }
  // What to add to a command that shall reach the same daemon.
  std::string DaemonWords() const;
  // The channel, or null after the complaint, with the status to exit with.
  std::shared_ptr<grpc::Channel> Connect(int* exit_status) const;
  // One call with a deadline that holds whatever happens: `call` is given its context.
  template <typename Call>
  grpc::Status Ask(absl::Duration time, const Call& call) const {
    const Watchdog watchdog(GrpcWatchdog(time, kNoDaemon, err_fd));
    grpc::ClientContext client_context;
    SetDeadline(client_context, time);
    return call(&client_context);
  }
};

// "K=V" pairs into a map. InvalidArgument names the one that is none.
absl::StatusOr<std::vector<std::pair<std::string, std::string>>> ParseLabels(
    const std::vector<std::string>& labels);

}  // namespace agentmon
