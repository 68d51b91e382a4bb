#include "daemon/rpc/server.h"

#include <errno.h>
#include <fcntl.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/server_posix.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/base/status.h"

namespace agentmon {
namespace {

constexpr int kMaxMessageBytes = 1 << 20;
constexpr int kMaxThreads = 160;

absl::StatusOr<sockaddr_un> AddressOf(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    return absl::InvalidArgumentError(absl::StrCat("socket path ", path, " is longer than 107 bytes"));
  }
  memcpy(address.sun_path, path.c_str(), path.size() + 1);
  return address;
}

}  // namespace

absl::StatusOr<UniqueFd> ListenOn(const std::string& path) {
  ASSIGN_OR_RETURN(const sockaddr_un address, AddressOf(path));
  const auto* generic = reinterpret_cast<const sockaddr*>(&address);
  {
    const UniqueFd probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::connect(probe.get(), generic, sizeof(address)) == 0) {
      return absl::FailedPreconditionError(absl::StrCat("another daemon listens on ", path));
    }
  }
  struct stat st{};
  if (::lstat(path.c_str(), &st) == 0) {
    if (!S_ISSOCK(st.st_mode)) return absl::FailedPreconditionError(absl::StrCat(path, " is in the way: not a socket"));
    ::unlink(path.c_str());
  }
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return ErrnoStatus(errno, "socket");
  if (::bind(fd.get(), generic, sizeof(address)) != 0) return ErrnoStatus(errno, absl::StrCat("bind ", path));
  if (::chmod(path.c_str(), 0666) != 0) return ErrnoStatus(errno, absl::StrCat("chmod ", path));
  if (::listen(fd.get(), 1024) != 0) return ErrnoStatus(errno, absl::StrCat("listen on ", path));
  return fd;
}

absl::StatusOr<std::unique_ptr<RpcServer>> RpcServer::Create(UniqueFd listener, Peers& peers,
                                                             const std::vector<grpc::Service*>& services) {
  static const bool once [[maybe_unused]] = [] {
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    return true;
  }();
  grpc::ServerBuilder builder;
  grpc::ResourceQuota quota("agentmond");
  quota.SetMaxThreads(kMaxThreads);
  quota.Resize(64 << 20);
  builder.SetResourceQuota(quota);
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder.SetSyncServerOption(grpc::ServerBuilder::NUM_CQS, 1);
  builder.SetSyncServerOption(grpc::ServerBuilder::MIN_POLLERS, 1);
  builder.SetSyncServerOption(grpc::ServerBuilder::MAX_POLLERS, 4);
  // The default of 10 s would wake an idle daemon.
  builder.SetSyncServerOption(grpc::ServerBuilder::CQ_TIMEOUT_MSEC, 3'600'000);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, 64);
  for (grpc::Service* service : services) builder.RegisterService(service);
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) return absl::InternalError("gRPC did not start");
  UniqueFd stop(::eventfd(0, EFD_CLOEXEC));
  if (!stop.valid()) return ErrnoStatus(errno, "eventfd");
  return std::unique_ptr<RpcServer>(new RpcServer(std::move(listener), std::move(stop), peers, std::move(server)));
}

RpcServer::RpcServer(UniqueFd listener, UniqueFd stop, Peers& peers, std::unique_ptr<grpc::Server> server)
    : listener_(std::move(listener)), stop_(std::move(stop)), peers_(peers), server_(std::move(server)) {
  accept_thread_ = std::thread([this] {
    pthread_setname_np(pthread_self(), "accept");
    AcceptLoop();
  });
}

RpcServer::~RpcServer() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = ::write(stop_.get(), &one, sizeof(one));
  accept_thread_.join();
  server_->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(1));
  server_->Wait();
}

void RpcServer::AcceptLoop() {
  int pause_ms = -1;
  for (;;) {
    // Without descriptors left, listening pauses instead of spinning.
    pollfd fds[2] = {{stop_.get(), POLLIN, 0}, {pause_ms > 0 ? -1 : listener_.get(), POLLIN, 0}};
    ::poll(fds, 2, pause_ms);
    pause_ms = -1;
    if (fds[0].revents != 0) return;
    UniqueFd connection(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!connection.valid()) {
      if (errno == EMFILE || errno == ENFILE || errno == ENOMEM) pause_ms = 100;
      continue;
    }
    absl::StatusOr<UniqueFd> admitted = peers_.Admit(std::move(connection));
    if (!admitted.ok()) {
      LogDebug("connection refused: ", admitted.status().message());
      continue;
    }
    grpc::AddInsecureChannelFromFd(server_.get(), admitted->Release());
  }
}

}  // namespace agentmon
