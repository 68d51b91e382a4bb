#include "daemon/resolver/dns_listener.h"

#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "common/base/status.h"
#include "daemon/resolver/dns_message.h"

namespace agentmon {
namespace {

constexpr int kBindTries = 32;
constexpr int kBatch = 32;  // messages of one session before others have their turn
constexpr int kBacklog = 16;

socklen_t Loopback(int family, uint16_t port, sockaddr_storage& storage) {
  storage = {};
  if (family == AF_INET) {
    auto& address = reinterpret_cast<sockaddr_in&>(storage);
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    return sizeof(address);
  }
  auto& address = reinterpret_cast<sockaddr_in6&>(storage);
  address.sin6_family = AF_INET6;
  address.sin6_addr = in6addr_loopback;
  address.sin6_port = htons(port);
  return sizeof(address);
}

absl::StatusOr<UniqueFd> BoundSocket(int family, int type, uint16_t port) {
  UniqueFd fd(::socket(family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return ErrnoStatus(errno, "make a socket of the resolver");
  sockaddr_storage address;
  const socklen_t size = Loopback(family, port, address);
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0)
    return ErrnoStatus(errno, "bind a socket of the resolver");
  return fd;
}

uint16_t PortOf(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  return ntohs(address.ss_family == AF_INET ? reinterpret_cast<const sockaddr_in&>(address).sin_port
                                            : reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
}

}  // namespace

// The port that one protocol was given may be taken in the other.
absl::StatusOr<DnsListener::Family> DnsListener::BindFamily(int family) {
  absl::Status failed = absl::UnavailableError("no port is free");
  for (int i = 0; i < kBindTries; ++i) {
    Family bound;
    ASSIGN_OR_RETURN(bound.udp, BoundSocket(family, SOCK_DGRAM, 0));
    bound.port = PortOf(bound.udp.get());
    absl::StatusOr<UniqueFd> tcp = BoundSocket(family, SOCK_STREAM, bound.port);
    if (!tcp.ok()) {
      failed = tcp.status();
      continue;
    }
    bound.tcp = *std::move(tcp);
    if (::listen(bound.tcp.get(), kBacklog) != 0) return ErrnoStatus(errno, "listen for the resolver");
    Loopback(family, bound.port, bound.address);
    return bound;
  }
  return failed;
}

absl::StatusOr<std::unique_ptr<DnsListener>> DnsListener::Bind() {
  std::unique_ptr<DnsListener> listener(new DnsListener());
  ASSIGN_OR_RETURN(Family four, BindFamily(AF_INET));
  listener->ports_.port4 = four.port;
  listener->families_.push_back(std::move(four));
  if (auto six = BindFamily(AF_INET6); six.ok()) {
    listener->ports_.port6 = six->port;
    listener->families_.push_back(*std::move(six));
  }
  return listener;
}

DnsListener::~DnsListener() {
  if (deps_ == nullptr) return;
  deps_->tcp_clients -= clients_.size();
  for (const Family& family : families_) {
    deps_->loop.Unwatch(family.udp.get());
    deps_->loop.Unwatch(family.tcp.get());
  }
}

absl::Status DnsListener::Serve(Deps deps) {
  deps_ = std::make_unique<Deps>(std::move(deps));
  for (const Family& family : families_) {
    RETURN_IF_ERROR(
        deps_->loop.Watch(family.udp.get(), EPOLLIN, [this, &family](uint32_t) { OnDatagrams(family); }));
    RETURN_IF_ERROR(
        deps_->loop.Watch(family.tcp.get(), EPOLLIN, [this, &family](uint32_t) { OnConnections(family); }));
  }
  return absl::OkStatus();
}

void DnsListener::OnDatagrams(const Family& family) {
  uint8_t buffer[kMostQueryBytes + 1];  // one that is longer shows as longer
  for (int i = 0; i < kBatch; ++i) {
    DnsPath path{IPPROTO_UDP, {}, family.address};
    socklen_t size = sizeof(path.client);
    const ssize_t n = ::recvfrom(family.udp.get(), buffer, sizeof(buffer), MSG_DONTWAIT,
                                 reinterpret_cast<sockaddr*>(&path.client), &size);
    if (n < 0) return;
    const std::optional<DnsClient> client = deps_->identify(path);
    if (!client.has_value()) {
      ++strangers_;
      continue;
    }
    // A descriptor of its own would be needed to answer after the session has ended; nobody waits then.
    deps_->on_message(*client, IPPROTO_UDP, absl::MakeConstSpan(buffer, static_cast<size_t>(n)),
                      [alive = std::weak_ptr<const int>(alive_), fd = family.udp.get(), to = path.client,
                       size](const std::vector<uint8_t>& message) {
                        if (message.empty() || alive.expired()) return;
                        // What does not fit into the socket is lost, as datagrams are; the program asks
                        // again.
                        ::sendto(fd, message.data(), message.size(), MSG_DONTWAIT | MSG_NOSIGNAL,
                                 reinterpret_cast<const sockaddr*>(&to), size);
                      });
  }
}

void DnsListener::OnConnections(const Family& family) {
  for (int i = 0; i < kBatch; ++i) {
    DnsPath path{IPPROTO_TCP, {}, family.address};
    socklen_t size = sizeof(path.client);
    UniqueFd fd(::accept4(family.tcp.get(), reinterpret_cast<sockaddr*>(&path.client), &size,
                          SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd.valid()) return;
    const std::optional<DnsClient> client = deps_->identify(path);
    if (!client.has_value()) ++strangers_;
    if (!client.has_value() || clients_.size() >= kTcpClients || deps_->tcp_clients >= kTcpClientsInAll)
      continue;
    const int number = fd.get();
    auto on_message = [this, client = *client](absl::Span<const uint8_t> message, const DnsReply& reply) {
      deps_->on_message(client, IPPROTO_TCP, message, reply);
    };
    auto on_end = [this, number] { deps_->tcp_clients -= clients_.erase(number); };
    auto connection =
        std::make_shared<TcpClient>(deps_->loop, std::move(fd), std::move(on_message), std::move(on_end));
    if (!connection->Start()) continue;
    clients_[number] = std::move(connection);
    ++deps_->tcp_clients;
  }
}

}  // namespace agentmon
