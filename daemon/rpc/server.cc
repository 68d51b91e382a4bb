#include "daemon/rpc/server.h"

#include <errno.h>
#include <fcntl.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
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
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/footprint.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "daemon/rpc/protobuf_log.h"

namespace agentmon {
namespace {

constexpr int kMaxMessageBytes = 5 << 20;  // a policy of 4 MiB and what is around it
constexpr int kMaxThreads = 160;
constexpr int kIdleMs = 2'000;

absl::StatusOr<sockaddr_un> AddressOf(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    return absl::InvalidArgumentError(absl::StrCat("socket path ", path, " is longer than 107 bytes"));
  }
  memcpy(address.sun_path, path.c_str(), path.size() + 1);
  return address;
}

std::unique_ptr<grpc::Server> BuildServer(const std::vector<grpc::Service*>& services) {
  grpc::ServerBuilder builder;
  grpc::ResourceQuota quota("agentmond");
  quota.SetMaxThreads(kMaxThreads);
  quota.Resize(64 << 20);
  builder.SetResourceQuota(quota);
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder.SetSyncServerOption(grpc::ServerBuilder::NUM_CQS, 1);
  builder.SetSyncServerOption(grpc::ServerBuilder::MIN_POLLERS, 1);
  builder.SetSyncServerOption(grpc::ServerBuilder::MAX_POLLERS, 4);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, 64);
  for (grpc::Service* service : services) builder.RegisterService(service);
  return builder.BuildAndStart();
}

}  // namespace

absl::StatusOr<UniqueFd> ListenOn(const std::string& path, mode_t mode) {
  ASSIGN_OR_RETURN(const sockaddr_un address, AddressOf(path));
  const auto* generic = reinterpret_cast<const sockaddr*>(&address);
  {
    const UniqueFd probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::connect(probe.get(), generic, sizeof(address)) == 0) {
      return absl::FailedPreconditionError(absl::StrCat("another daemon listens on ", path));
    }
  }
  struct stat st {};
  if (::lstat(path.c_str(), &st) == 0) {
    if (!S_ISSOCK(st.st_mode))
      return absl::FailedPreconditionError(absl::StrCat(path, " is in the way: not a socket"));
    ::unlink(path.c_str());
  }
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return ErrnoStatus(errno, "socket");
  if (::bind(fd.get(), generic, sizeof(address)) != 0) return ErrnoStatus(errno, absl::StrCat("bind ", path));
  if (::chmod(path.c_str(), mode) != 0) return ErrnoStatus(errno, absl::StrCat("chmod ", path));
  if (::listen(fd.get(), 1024) != 0) return ErrnoStatus(errno, absl::StrCat("listen on ", path));
  return fd;
}

absl::StatusOr<std::unique_ptr<RpcServer>> RpcServer::Create(UniqueFd listener, Peers& peers,
                                                             std::vector<grpc::Service*> services) {
  static const bool once [[maybe_unused]] = [] {
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    LimitProtobufLog();
    return true;
  }();
  UniqueFd stop(::eventfd(0, EFD_CLOEXEC));
  if (!stop.valid()) return ErrnoStatus(errno, "eventfd");
  return std::unique_ptr<RpcServer>(
      new RpcServer(std::move(listener), std::move(stop), peers, std::move(services)));
}

RpcServer::RpcServer(UniqueFd listener, UniqueFd stop, Peers& peers, std::vector<grpc::Service*> services)
    : listener_(std::move(listener)), stop_(std::move(stop)), peers_(peers), services_(std::move(services)) {
  accept_thread_ = std::thread([this] {
    pthread_setname_np(pthread_self(), "accept");
    AcceptLoop();
    StopGrpc();
  });
}

RpcServer::~RpcServer() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = ::write(stop_.get(), &one, sizeof(one));
  accept_thread_.join();
}

void RpcServer::AcceptLoop() {
  for (;;) {
    // Without descriptors left, listening pauses instead of spinning.
    const int timeout_ms = out_of_descriptors_ ? 100 : server_ != nullptr ? kIdleMs : -1;
    pollfd fds[2] = {{stop_.get(), POLLIN, 0}, {out_of_descriptors_ ? -1 : listener_.get(), POLLIN, 0}};
    const int ready = ::poll(fds, 2, timeout_ms);
    if (fds[0].revents != 0) return;
    if (fds[1].revents != 0) {
      Accept();
    } else if (ready == 0 && !std::exchange(out_of_descriptors_, false) && peers_.OpenConnections() == 0) {
      StopGrpc();
      GiveBackMemory();
    }
  }
}

void RpcServer::Accept() {
  UniqueFd connection(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!connection.valid()) {
    out_of_descriptors_ = errno == EMFILE || errno == ENFILE || errno == ENOMEM;
    return;
  }
  absl::StatusOr<UniqueFd> admitted = peers_.Admit(std::move(connection));
  if (!admitted.ok()) return LogDebug("connection refused: ", admitted.status().message());
  if (server_ == nullptr) server_ = BuildServer(services_);
  if (server_ == nullptr) return LogError("gRPC did not start; a connection was dropped");
  grpc::AddInsecureChannelFromFd(server_.get(), admitted->Release());
}

void RpcServer::StopGrpc() {
  if (server_ == nullptr) return;
  server_->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(1));
  server_->Wait();
  server_.reset();
}

}  // namespace agentmon
