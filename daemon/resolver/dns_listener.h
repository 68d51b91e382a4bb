// The sockets at which one session's questions arrive, and through which answers go back.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/unique_fd.h"
#include "daemon/resolver/poll_loop.h"
#include "daemon/resolver/resolver_host.h"
#include "daemon/resolver/tcp_client.h"

namespace agentmon {

// On 127.0.0.1 and ::1, each with one port for UDP and TCP that the kernel chose.
struct DnsPorts {
  uint16_t port4 = 0, port6 = 0;  // port6 0: this host has no IPv6
};

// Bound and gone on any thread, serves on the loop's.
class DnsListener {
 public:
  using Identify = std::function<std::optional<DnsClient>(const DnsPath&)>;
  // reply: at most once, now or later, also when the listener is gone.
  using OnMessage = std::function<void(const DnsClient& client, int protocol,
                                       absl::Span<const uint8_t> message, const DnsReply& reply)>;
  struct Deps {
    PollLoop& loop;
    size_t& tcp_clients;  // of all listeners
    Identify identify;
    OnMessage on_message;
  };
  static constexpr size_t kTcpClients = 16, kTcpClientsInAll = 256;

  static absl::StatusOr<std::unique_ptr<DnsListener>> Bind();
  ~DnsListener();
  DnsPorts ports() const { return ports_; }
  absl::Status Serve(Deps deps);
  // Messages of sockets that were not led here.
  uint64_t strangers() const { return strangers_; }

 private:
  struct Family {
    UniqueFd udp, tcp;
    uint16_t port = 0;
    sockaddr_storage address{};
  };
  DnsListener() = default;
  static absl::StatusOr<Family> BindFamily(int family);
  void OnDatagrams(const Family& family);
  void OnConnections(const Family& family);

  std::vector<Family> families_;
  DnsPorts ports_;
  std::unique_ptr<Deps> deps_;
  std::map<int, std::shared_ptr<TcpClient>> clients_;
  uint64_t strangers_ = 0;
  std::shared_ptr<const int> alive_ = std::make_shared<const int>(0);  // for answers that come late
};

}  // namespace agentmon
