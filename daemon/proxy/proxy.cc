#include "daemon/proxy/proxy.h"

#include <netinet/in.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "daemon/proxy/peer_process.h"

namespace agentmon {
namespace {

constexpr int kBacklog = 64;
constexpr int kBatch = 16;  // connections of one session before others have their turn
constexpr absl::Duration kAcceptPause = absl::Milliseconds(200);  // without descriptors

absl::StatusOr<UniqueFd> ListenOnLoopback(uint16_t port) {
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return ErrnoStatus(errno, "make a socket of the proxy");
  const int on = 1;
  if (port != 0) ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0)
    return ErrnoStatus(errno, absl::StrCat("bind the proxy to 127.0.0.1:", port));
  if (::listen(fd.get(), kBacklog) != 0) return ErrnoStatus(errno, "listen for the proxy");
  return fd;
}

uint16_t PortOf(int fd) {
  sockaddr_in address{};
  socklen_t size = sizeof(address);
  return ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0 ? ntohs(address.sin_port)
                                                                              : uint16_t{0};
}

}  // namespace

Proxy::Proxy(const Clock& clock, OnEvent on_event, Options options, std::unique_ptr<PollLoop> loop,
             SocketLookup lookup)
    : clock_(clock),
      on_event_(std::move(on_event)),
      options_(std::move(options)),
      loop_(std::move(loop)),
      lookup_(std::move(lookup)),
      router_(*loop_, clock, ports_, options_.upstream, options_.hosts_file) {}

absl::StatusOr<std::unique_ptr<Proxy>> Proxy::Start(const Clock& clock, OnEvent on_event, Options options) {
  ASSIGN_OR_RETURN(std::unique_ptr<PollLoop> loop, PollLoop::Create());
  ASSIGN_OR_RETURN(SocketLookup lookup, SocketLookup::Create());
  std::unique_ptr<Proxy> proxy(
      new Proxy(clock, std::move(on_event), std::move(options), std::move(loop), std::move(lookup)));
  proxy->thread_ = std::thread([loop = proxy->loop_.get()] {
    ::pthread_setname_np(::pthread_self(), "proxy");
    loop->Run();
  });
  return proxy;
}

Proxy::~Proxy() {
  loop_->Quit();
  thread_.join();
}

absl::StatusOr<ProxyDoor> Proxy::AddSession(ProxiedSession session, const std::optional<ProxyDoor>& earlier) {
  ASSIGN_OR_RETURN(UniqueFd listener, ListenOnLoopback(earlier.has_value() ? earlier->port : uint16_t{0}));
  auto served = std::make_shared<ProxySession>();
  served->of = std::move(session);
  served->door = earlier.has_value() ? *earlier : ProxyDoor{PortOf(listener.get()), NewProxyToken()};
  const ProxyDoor door = served->door;
  ports_.Add(door.port);
  {
    absl::MutexLock lock(&mutex_);
    known_.insert(served->of.cgroup_id);
  }
  // Tasks are copied; the listener is not.
  auto bound = std::make_shared<UniqueFd>(std::move(listener));
  loop_->Post([this, served, bound] { Serve(served, std::move(*bound)); });
  return door;
}

void Proxy::RemoveSession(uint64_t cgroup_id) {
  {
    absl::MutexLock lock(&mutex_);
    if (known_.erase(cgroup_id) == 0) return;
  }
  loop_->Post([this, cgroup_id] {
    const auto it = sessions_.find(cgroup_id);
    if (it == sessions_.end()) return;
    const Served gone = std::move(it->second);
    sessions_.erase(it);
    connections_ -= gone.clients.size();
    ports_.Remove(gone.session->door.port);
    loop_->Unwatch(gone.listener.get());
  });
}

void Proxy::Serve(const std::shared_ptr<ProxySession>& session, UniqueFd listener) {
  const uint64_t cgroup_id = session->of.cgroup_id;
  Served& served = sessions_[cgroup_id];
  served.session = session;
  served.listener = std::move(listener);
  Accept(cgroup_id, true);
}

void Proxy::Accept(uint64_t cgroup_id, bool accepts) {
  const auto it = sessions_.find(cgroup_id);
  if (it == sessions_.end() || it->second.accepts == accepts) return;
  Served& served = it->second;
  served.accepts = accepts;
  if (!accepts) return loop_->Unwatch(served.listener.get());
  const absl::Status watched =
      loop_->Watch(served.listener.get(), EPOLLIN, [this, cgroup_id](uint32_t) { OnConnections(cgroup_id); });
  if (!watched.ok()) LogError("the proxy of a session serves nobody: ", watched.message());
}

// Of another user, or not to be found: nobody whom the session's token could have reached.
std::optional<ProxyPeer> Proxy::Identify(const ProxySession& session, int fd) {
  sockaddr_storage here{}, there{};
  socklen_t size = sizeof(here);
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&here), &size) != 0) return std::nullopt;
  size = sizeof(there);
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&there), &size) != 0) return std::nullopt;
  const auto found = lookup_.Find(IPPROTO_TCP, here, there);
  if (!found.ok()) {
    if (!absl::IsNotFound(found.status())) LogWarning("who asks the proxy: ", found.status().message());
    return std::nullopt;
  }
  if (found->uid != ::geteuid()) return std::nullopt;
  ProxyPeer peer;
  peer.uid = found->uid;
  peer.pid = FindSocketOwner(session.of.members(), found->inode);
  return peer;
}

void Proxy::OnConnections(uint64_t cgroup_id) {
  for (int i = 0; i < kBatch; ++i) {
    const auto it = sessions_.find(cgroup_id);
    if (it == sessions_.end()) return;
    Served& served = it->second;
    if (served.clients.size() >= options_.connections_per_session) return Accept(cgroup_id, false);
    UniqueFd fd(::accept4(served.listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd.valid()) {
      if (errno != EMFILE && errno != ENFILE && errno != ENOMEM && errno != ENOBUFS) return;
      Accept(cgroup_id, false);
      loop_->After(kAcceptPause, [this, cgroup_id] { Accept(cgroup_id, true); });
      return;
    }
    if (connections_ >= options_.connections) continue;
    const std::optional<ProxyPeer> peer = Identify(*served.session, fd.get());
    if (peer.has_value()) Begin(cgroup_id, served, std::move(fd), *peer);
  }
}

void Proxy::Begin(uint64_t cgroup_id, Served& served, UniqueFd fd, const ProxyPeer& peer) {
  const uint64_t number = next_number_++;
  ProxyClient::Deps deps{*loop_, router_,
                         [this, session = served.session](const ProxyPeer& who, const Event& event) {
                           // What the self-test does is no doing of the agent's.
                           if (session->of.gate->proving()) return;
                           on_event_(session->of.cgroup_id, who, clock_.BootNs(), event);
                         },
                         [this, cgroup_id, number] { OnEnd(cgroup_id, number); }};
  auto client = std::make_shared<ProxyClient>(std::move(deps), served.session, peer, std::move(fd));
  if (!client->Start()) return;
  served.clients[number] = std::move(client);
  ++connections_;
}

void Proxy::OnEnd(uint64_t cgroup_id, uint64_t number) {
  const auto it = sessions_.find(cgroup_id);
  if (it == sessions_.end() || it->second.clients.erase(number) == 0) return;
  --connections_;
  Accept(cgroup_id, true);
}

}  // namespace agentmon
