#include "shim/session_client.h"

#include <fcntl.h>
#include <grpc/support/log.h>
#include <grpcpp/create_channel_posix.h>
#include <grpcpp/grpcpp.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace agentmon {
namespace {

constexpr int kConnectSeconds = 10;
constexpr int kCallSeconds = 30;
constexpr size_t kTokenMax = 4096;

absl::Status CheckServer(int connection) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0)
    return ErrnoStatus(errno, "SO_PEERCRED");
  if (peer.uid == 0 || peer.uid == geteuid()) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat("the socket is served by uid ", peer.uid, ", not by root or you"));
}

absl::Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  const bool broke = status.error_code() == grpc::StatusCode::UNAVAILABLE ||
                     status.error_code() == grpc::StatusCode::CANCELLED;
  if (broke)
    return absl::UnavailableError(
        absl::StrCat("the connection to agentmond broke (", status.error_message(), "): start it again"));
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

void SetDeadline(grpc::ClientContext& context) {
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(kCallSeconds));
}

}  // namespace

absl::StatusOr<UniqueFd> ConnectToDaemon(const std::string& socket_path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (socket_path.size() >= sizeof(address.sun_path))
    return absl::InvalidArgumentError("the socket's path is too long");
  std::memcpy(address.sun_path, socket_path.data(), socket_path.size());
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return ErrnoStatus(errno, "socket");
  const timeval timeout{kConnectSeconds, 0};  // connect waits while the daemon's backlog is full
  setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return ErrnoStatus(errno, absl::StrCat("connect to ", socket_path));
  }
  RETURN_IF_ERROR(CheckServer(fd.get()));
  if (fcntl(fd.get(), F_SETFL, O_NONBLOCK) != 0) return ErrnoStatus(errno, "set O_NONBLOCK");
  return fd;
}

absl::StatusOr<std::string> ReadToken(UniqueFd pipe) {
  std::string token(kTokenMax, '\0');
  size_t have = 0;
  while (have < token.size()) {
    const ssize_t n = read(pipe.get(), &token[have], token.size() - have);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, "read the token");
    if (n == 0) break;
    have += static_cast<size_t>(n);
  }
  if (have == 0) return absl::InvalidArgumentError("the token's descriptor is empty");
  token.resize(have);
  return token;
}

SessionClient::SessionClient(UniqueFd connection, std::string token) : token_(std::move(token)) {
  // The agent's standard error is not ours to write to, whatever GRPC_VERBOSITY its user has set.
  gpr_set_log_function([](gpr_log_func_args*) {});
  stub_ = v1::Sessions::NewStub(grpc::CreateInsecureChannelFromFd("agentmond", connection.Release()));
}

absl::StatusOr<v1::AttachResponse> SessionClient::Attach(const std::string& namespace_error) {
  v1::AttachRequest request;
  request.set_token(token_);
  request.set_namespace_error(namespace_error);
  v1::AttachResponse response;
  grpc::ClientContext context;
  SetDeadline(context);
  RETURN_IF_ERROR(WithContext(FromGrpc(stub_->Attach(&context, request, &response)), "join the session"));
  return response;
}

absl::StatusOr<v1::ArmResponse> SessionClient::Arm(int notify_fd, const std::string& notify_error) {
  v1::ArmRequest request;
  request.set_token(token_);
  request.set_notify_fd(notify_fd);
  request.set_notify_error(notify_error);
  v1::ArmResponse response;
  grpc::ClientContext context;
  SetDeadline(context);
  RETURN_IF_ERROR(WithContext(FromGrpc(stub_->Arm(&context, request, &response)), "arm the session"));
  return response;
}

absl::Status SessionClient::Prove(const std::vector<int>& errors, int datagram_socket) {
  v1::ProveRequest request;
  request.set_token(token_);
  for (const int error : errors) request.add_results()->set_error(error);
  request.set_datagram_socket(datagram_socket);
  v1::ProveResponse response;
  grpc::ClientContext context;
  SetDeadline(context);
  return WithContext(FromGrpc(stub_->Prove(&context, request, &response)), "prove the session's controls");
}

}  // namespace agentmon
