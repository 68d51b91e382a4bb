// The shim's calls to the daemon: Attach, Arm, and Prove when that asks for it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "agentmon/v1/sessions.grpc.pb.h"
#include "common/base/unique_fd.h"

namespace agentmon {

// Connects to the daemon and checks who serves there: root, or the caller's own uid; for a root caller root
// only.
absl::StatusOr<UniqueFd> ConnectToDaemon(const std::string& socket_path);

// Reads what the starter wrote into the token pipe, and closes it.
absl::StatusOr<std::string> ReadToken(UniqueFd pipe);

// One connection, never made anew: when it breaks, every call fails. Blocks. All calls must come from a
// thread that the notify filter does not cover, since gRPC may open files.
class SessionClient {
 public:
  SessionClient(UniqueFd connection, std::string token);

  absl::StatusOr<v1::AttachResponse> Attach(const std::string& namespace_error);
  // notify_fd: a descriptor of this process, or -1 and why there is none.
  absl::StatusOr<v1::ArmResponse> Arm(int notify_fd, const std::string& notify_error);
  // The errno of each canary of the plan. datagram_socket: a descriptor of this process, or -1.
  absl::Status Prove(const std::vector<int>& errors, int datagram_socket);

 private:
  std::string token_;
  std::unique_ptr<v1::Sessions::Stub> stub_;
};

}  // namespace agentmon
