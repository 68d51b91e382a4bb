#include "tests/host/fake_sessions.h"

#include <unistd.h>

#include <chrono>
#include <filesystem>

namespace agentmon {

FakeSessions::FakeSessions(const std::string& socket_path) {
  grpc::ServerBuilder builder;
  builder.AddListeningPort("unix:" + socket_path, grpc::InsecureServerCredentials());
  builder.RegisterService(this);
  server_ = builder.BuildAndStart();
}

FakeSessions::~FakeSessions() { server_->Shutdown(std::chrono::system_clock::now()); }

grpc::Status FakeSessions::Attach(grpc::ServerContext*, const v1::AttachRequest* request,
                                  v1::AttachResponse* response) {
  {
    absl::MutexLock lock(&mutex_);
    attached_.push_back(*request);
  }
  response->set_session("s-1");
  return on_attach ? on_attach(response) : grpc::Status::OK;
}

grpc::Status FakeSessions::Arm(grpc::ServerContext*, const v1::ArmRequest* request,
                               v1::ArmResponse* response) {
  response->set_prove(on_prove != nullptr);
  {
    absl::MutexLock lock(&mutex_);
    armed_.push_back(*request);
  }
  return on_arm ? on_arm(*request) : grpc::Status::OK;
}

grpc::Status FakeSessions::Prove(grpc::ServerContext*, const v1::ProveRequest* request, v1::ProveResponse*) {
  {
    absl::MutexLock lock(&mutex_);
    proven_.push_back(*request);
  }
  return on_prove(*request);
}

std::vector<v1::ProveRequest> FakeSessions::proven() const {
  absl::MutexLock lock(&mutex_);
  return proven_;
}

std::vector<v1::AttachRequest> FakeSessions::attached() const {
  absl::MutexLock lock(&mutex_);
  return attached_;
}

std::vector<v1::ArmRequest> FakeSessions::armed() const {
  absl::MutexLock lock(&mutex_);
  return armed_;
}

std::vector<std::string> ShimCommand(const std::string& program, const std::string& socket_path, int token_fd,
                                     const std::vector<std::string>& command) {
  std::vector<std::string> argv = {program, "--socket", socket_path, "--token-fd", std::to_string(token_fd),
                                   "--"};
  argv.insert(argv.end(), command.begin(), command.end());
  return argv;
}

int TokenPipe(const std::string& token) {
  int fds[2];
  if (pipe(fds) != 0) abort();
  if (write(fds[1], token.data(), token.size()) != static_cast<ssize_t>(token.size())) abort();
  close(fds[1]);
  return fds[0];
}

std::string ProgramPath(const std::string& name) {
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe");
  return self.parent_path().parent_path() / "bin" / name;
}

}  // namespace agentmon
