// A stand-in for the daemon's Sessions service on a unix socket: only what the shim calls.
#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "agentmon/v1/sessions.grpc.pb.h"

namespace agentmon {

class FakeSessions : public v1::Sessions::Service {
 public:
  explicit FakeSessions(const std::string& socket_path);
  ~FakeSessions() override;

  // Answers, changed before a shim starts. Called on a gRPC thread.
  std::function<grpc::Status(v1::AttachResponse*)> on_attach;
  std::function<grpc::Status(const v1::ArmRequest&)> on_arm;
  std::function<grpc::Status(const v1::ProveRequest&)> on_prove;  // set: Arm asks for it

  std::vector<v1::AttachRequest> attached() const;
  std::vector<v1::ArmRequest> armed() const;
  std::vector<v1::ProveRequest> proven() const;

  grpc::Status Attach(grpc::ServerContext*, const v1::AttachRequest*, v1::AttachResponse*) override;
  grpc::Status Arm(grpc::ServerContext*, const v1::ArmRequest*, v1::ArmResponse*) override;
  grpc::Status Prove(grpc::ServerContext*, const v1::ProveRequest*, v1::ProveResponse*) override;

 private:
  mutable absl::Mutex mutex_;
  std::vector<v1::AttachRequest> attached_;
  std::vector<v1::ArmRequest> armed_;
  std::vector<v1::ProveRequest> proven_;
  std::unique_ptr<grpc::Server> server_;
};

// Command line of build/bin/agentmon-shim (or agentmon-ns) that joins `socket_path` and becomes `command`.
// The token is "token", in a descriptor that the child inherits.
std::vector<std::string> ShimCommand(const std::string& program, const std::string& socket_path, int token_fd,
                                     const std::vector<std::string>& command);

// A pipe's reading end that holds `token`; inheritable.
int TokenPipe(const std::string& token = "token");

// Of the build that the test belongs to.
std::string ProgramPath(const std::string& name);

}  // namespace agentmon
