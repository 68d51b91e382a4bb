// A resolver between programs and a server that the test plays, on sockets of the loopback.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "common/policy/current.h"
#include "common/policy/testing/snapshots.h"
#include "daemon/resolver/dns_fixture.h"
#include "daemon/resolver/resolver.h"

namespace agentmon {

constexpr int kWaitMs = 10'000;  // for what must come

inline sockaddr_in Loopback4(uint16_t port, uint32_t host = INADDR_LOOPBACK) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(host);
  address.sin_port = htons(port);
  return address;
}

inline bool Readable(int fd, int timeout_ms = kWaitMs) {
  pollfd waits{fd, POLLIN, 0};
  return ::poll(&waits, 1, timeout_ms) == 1;
}

inline void ReadAll(int fd, uint8_t* to, size_t size) {
  for (size_t at = 0; at < size;) {
    REQUIRE(Readable(fd));
    const ssize_t n = ::recv(fd, to + at, size - at, 0);
    REQUIRE(n > 0);
    at += static_cast<size_t>(n);
  }
}

// Answers what `answer` makes of a question; an empty message is silence. UDP and TCP on one port of
// 127.0.0.9.
class FakeServer {
 public:
  using Answer = std::function<std::vector<uint8_t>(const DnsQuery& query, bool tcp)>;

  explicit FakeServer(Answer answer) : answer_(std::move(answer)) {
    for (int i = 0; i < 50 && !tcp_.valid(); ++i) {
      udp_ = UniqueFd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
      sockaddr_in address = Loopback4(0, kHost);
      socklen_t size = sizeof(address);
      REQUIRE(::bind(udp_.get(), reinterpret_cast<sockaddr*>(&address), size) == 0);
      REQUIRE(::getsockname(udp_.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
      port_ = ntohs(address.sin_port);
      UniqueFd tcp(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      if (::bind(tcp.get(), reinterpret_cast<sockaddr*>(&address), size) == 0 && ::listen(tcp.get(), 16) == 0)
        tcp_ = std::move(tcp);
    }
    REQUIRE(tcp_.valid());
    thread_ = std::thread([this] { Run(); });
  }
  ~FakeServer() {
    stop_ = true;
    thread_.join();
  }
  std::string servers() const { return absl::StrCat("127.0.0.9:", port_); }
  int asked() const { return asked_; }

 private:
  static constexpr uint32_t kHost = 0x7f000009;

  void Run() {
    while (!stop_) {
      pollfd ready[] = {{udp_.get(), POLLIN, 0}, {tcp_.get(), POLLIN, 0}};
      if (::poll(ready, 2, 20) <= 0) continue;
      if (ready[0].revents != 0) Datagram();
      if (ready[1].revents != 0) Connection();
    }
  }
  std::vector<uint8_t> Make(absl::Span<const uint8_t> message, bool tcp) {
    const ReceivedQuery got = ReadQuery(message);
    if (got.what != ReceivedQuery::What::kQuestion) return {};
    ++asked_;
    std::vector<uint8_t> reply = answer_(got.query, tcp);
    if (reply.size() >= 2) {
      reply[0] = static_cast<uint8_t>(got.query.id >> 8);
      reply[1] = static_cast<uint8_t>(got.query.id);
    }
    return reply;
  }
  void Datagram() {
    uint8_t buffer[2048];
    sockaddr_in from{};
    socklen_t size = sizeof(from);
    const ssize_t n =
        ::recvfrom(udp_.get(), buffer, sizeof(buffer), 0, reinterpret_cast<sockaddr*>(&from), &size);
    if (n < 0) return;
    const std::vector<uint8_t> reply = Make(absl::MakeConstSpan(buffer, static_cast<size_t>(n)), false);
    if (!reply.empty())
      ::sendto(udp_.get(), reply.data(), reply.size(), 0, reinterpret_cast<sockaddr*>(&from), size);
  }
  void Connection() {
    const UniqueFd fd(::accept4(tcp_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    uint8_t buffer[2048];
    size_t have = 0;
    while (have < 2 || have < 2u + (buffer[0] << 8 | buffer[1])) {
      if (!Readable(fd.get(), 1000)) return;
      const ssize_t n = ::recv(fd.get(), buffer + have, sizeof(buffer) - have, 0);
      if (n <= 0) return;
      have += static_cast<size_t>(n);
    }
    std::vector<uint8_t> reply = Make(absl::MakeConstSpan(buffer + 2, have - 2), true);
    reply.insert(reply.begin(),
                 {static_cast<uint8_t>(reply.size() >> 8), static_cast<uint8_t>(reply.size())});
    ::send(fd.get(), reply.data(), reply.size(), MSG_NOSIGNAL);
  }

  const Answer answer_;
  UniqueFd udp_, tcp_;
  uint16_t port_ = 0;
  std::atomic<bool> stop_{false};
  std::atomic<int> asked_{0};
  std::thread thread_;
};

// Serves whom the test names, and keeps what it is told.
class FakeHost : public ResolverHost {
 public:
  std::optional<DnsClient> Identify(uint64_t, const DnsPath& path) override {
    const uint16_t port = ntohs(path.client.ss_family == AF_INET
                                    ? reinterpret_cast<const sockaddr_in&>(path.client).sin_port
                                    : reinterpret_cast<const sockaddr_in6&>(path.client).sin6_port);
    absl::MutexLock lock(&mutex_);
    if (known_.count(port) == 0) return std::nullopt;
    return DnsClient{4711, 1000, *policy::ParseAddress("192.0.2.53"), 53};
  }
  void Settle(uint64_t) override {}
  absl::Status Open(uint64_t, const std::string& name, const policy::Address& address,
                    int64_t until) override {
    absl::MutexLock lock(&mutex_);
    if (full_) return absl::ResourceExhaustedError("full");
    opened_.push_back(absl::StrCat(name, "=", policy::ToString(address)));
    until_ = until;
    return absl::OkStatus();
  }
  bool IsOwn(const policy::Address& address) override {
    return address == *policy::ParseAddress("203.0.113.7");
  }
  void OnEvent(uint64_t, const DnsClient&, int64_t, const Event& event) override {
    absl::MutexLock lock(&mutex_);
    events_.push_back(event);
  }

  void Know(uint16_t port) {
    absl::MutexLock lock(&mutex_);
    known_.insert(port);
  }
  void SetFull() {
    absl::MutexLock lock(&mutex_);
    full_ = true;
  }
  std::vector<std::string> opened() {
    absl::MutexLock lock(&mutex_);
    return opened_;
  }
  int64_t until() {
    absl::MutexLock lock(&mutex_);
    return until_;
  }
  std::vector<Event> events() {
    absl::MutexLock lock(&mutex_);
    return events_;
  }

 private:
  absl::Mutex mutex_;
  std::set<uint16_t> known_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> opened_ ABSL_GUARDED_BY(mutex_);
  std::vector<Event> events_ ABSL_GUARDED_BY(mutex_);
  int64_t until_ ABSL_GUARDED_BY(mutex_) = 0;
  bool full_ ABSL_GUARDED_BY(mutex_) = false;
};

struct Got {  // an answer as a program sees it
  int rcode = -1;
  bool cut = false;
  std::vector<std::string> records;
};

class ResolverRig {
 public:
  explicit ResolverRig(absl::string_view rules, FakeServer::Answer answer = NoAnswer,
                       std::function<void(Resolver::Options&)> change = nullptr)
      : server(std::move(answer)), policy(policy::MakeBase(rules)) {
    Resolver::Options options;
    options.upstream.servers = server.servers();
    options.upstream.server_timeout = absl::Milliseconds(250);
    options.upstream.tries = 1;
    options.hosts_file = "/nonexistent/hosts";
    if (change) change(options);
    auto started = Resolver::Start(clock, host, options);
    REQUIRE(started.ok());
    resolver = *std::move(started);
    const auto added = resolver->AddSession(kSession, [this] { return policy.Get(); });
    REQUIRE(added.ok());
    ports = *added;
  }
  static constexpr uint64_t kSession = 42;
  static std::vector<uint8_t> NoAnswer(const DnsQuery&, bool) { return {}; }

  UniqueFd Udp(bool known = true, int family = AF_INET) {
    UniqueFd fd(::socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    Connect(fd.get(), known, family);
    return fd;
  }
  UniqueFd Tcp(bool known = true, int family = AF_INET) {
    UniqueFd fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    Connect(fd.get(), known, family);
    return fd;
  }

  Got Ask(absl::string_view name, uint16_t type = kDnsA, bool tcp = false) {
    const UniqueFd fd = tcp ? Tcp() : Udp();
    Send(fd.get(), agentmon::Ask(name, type), tcp);
    return Receive(fd.get(), name, type, tcp);
  }
  static void Send(int fd, std::vector<uint8_t> message, bool tcp) {
    if (tcp)
      message.insert(message.begin(),
                     {static_cast<uint8_t>(message.size() >> 8), static_cast<uint8_t>(message.size())});
    REQUIRE(::send(fd, message.data(), message.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(message.size()));
  }
  static Got Receive(int fd, absl::string_view name, uint16_t type, bool tcp) {
    std::vector<uint8_t> bytes(70'000);
    REQUIRE(Readable(fd));
    if (tcp) {
      uint8_t length[2];
      ReadAll(fd, length, 2);
      bytes.resize(static_cast<size_t>(length[0]) << 8 | length[1]);
      ReadAll(fd, bytes.data(), bytes.size());
    } else {
      const ssize_t n = ::recv(fd, bytes.data(), bytes.size(), 0);
      REQUIRE(n > 0);
      bytes.resize(static_cast<size_t>(n));
    }
    REQUIRE(bytes.size() >= 12);
    Got got;
    got.rcode = bytes[3] & 0xf;
    got.cut = (bytes[2] & 2) != 0;
    const auto answer = DnsAnswer::Read(bytes, ReadQuery(agentmon::Ask(name, type)).query.question);
    if (answer.ok()) got.records = answer->Describe(1000);
    return got;
  }

  FakeServer server;
  FakeHost host;
  SystemClock clock;
  policy::CurrentSnapshot policy;
  std::unique_ptr<Resolver> resolver;
  DnsPorts ports;

 private:
  void Connect(int fd, bool known, int family) {
    sockaddr_storage to{};
    socklen_t size = sizeof(sockaddr_in);
    if (family == AF_INET) {
      reinterpret_cast<sockaddr_in&>(to) = Loopback4(ports.port4);
    } else {
      auto& six = reinterpret_cast<sockaddr_in6&>(to);
      six.sin6_family = AF_INET6;
      six.sin6_addr = in6addr_loopback;
      six.sin6_port = htons(ports.port6);
      size = sizeof(six);
    }
    // Bound first, so that who it is is known before the listener sees it.
    sockaddr_storage own = to;
    (family == AF_INET ? reinterpret_cast<sockaddr_in&>(own).sin_port
                       : reinterpret_cast<sockaddr_in6&>(own).sin6_port) = 0;
    REQUIRE(::bind(fd, reinterpret_cast<sockaddr*>(&own), size) == 0);
    socklen_t own_size = sizeof(own);
    REQUIRE(::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &own_size) == 0);
    if (known) {
      host.Know(ntohs(family == AF_INET ? reinterpret_cast<sockaddr_in&>(own).sin_port
                                        : reinterpret_cast<sockaddr_in6&>(own).sin6_port));
    }
    REQUIRE(::connect(fd, reinterpret_cast<sockaddr*>(&to), size) == 0);
  }
};

}  // namespace agentmon
