// The gRPC server on the unix socket: accepts, reads credentials, hands connections over. gRPC itself is
// started by the first connection and stopped when there has been none for a while: its timer threads wake
// up twice a second, for ever, and an idle daemon should sleep.
#pragma once

#include <grpcpp/server.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/unique_fd.h"
#include "daemon/rpc/peers.h"

namespace agentmon {

// A listening socket that anyone may connect to (what they may do follows from who they are), in a
// directory of root's. Replaces a socket that nobody listens on; refuses while somebody does.
absl::StatusOr<UniqueFd> ListenOn(const std::string& path, mode_t mode = 0666);

class RpcServer {
 public:
  static absl::StatusOr<std::unique_ptr<RpcServer>> Create(UniqueFd listener, Peers& peers,
                                                           std::vector<grpc::Service*> services);
  // Running calls get a second to end, streams are cancelled.
  ~RpcServer();

 private:
  RpcServer(UniqueFd listener, UniqueFd stop, Peers& peers, std::vector<grpc::Service*> services);
  void AcceptLoop();
  void Accept();
  void StopGrpc();

  UniqueFd listener_;
  UniqueFd stop_;  // eventfd
  Peers& peers_;
  const std::vector<grpc::Service*> services_;
  // Accept thread.
  std::unique_ptr<grpc::Server> server_;
  bool out_of_descriptors_ = false;
  std::thread accept_thread_;
};

}  // namespace agentmon
