#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "daemon/probe/network_probe.h"
#include "tests/host/kernel_fixture.h"

namespace agentmon {
namespace {

struct Rig {
  SystemClock clock;
  TestCgroup base;
  TestCgroup session{base->path()};
  PollTaskRunner runner;
  EventCollector sink;
  std::unique_ptr<BpfRing> ring;
  std::unique_ptr<NetworkProbe> probe;

  Rig() {
    ring = *BpfRing::Create(base->fd(), runner);
    auto made = NetworkProbe::Create(*ring, base->fd(), absl::StrCat("test", getpid()), clock);
    INFO(made.status());
    REQUIRE(made.ok());
    probe = *std::move(made);
    REQUIRE(ring->AddSession(session->id()).ok());
    const absl::Status attached = probe->Attach(sink);
    INFO(attached);
    REQUIRE(attached.ok());
  }

  // Runs the body in the session and returns when its `events` events have come.
  pid_t Run(size_t events, const std::function<int()>& body) {
    const pid_t pid = RunIn(*session, body);
    const int status = WaitFor(pid);
    REQUIRE(WIFEXITED(status));
    REQUIRE(WEXITSTATUS(status) == 0);
    INFO("events: " << sink.events.size());
    REQUIRE(runner.RunUntil([&] { return sink.events.size() >= events; }, absl::Seconds(5)));
    ring->Drain();
    CHECK(sink.events.size() == events);
    CHECK(sink.malformed == 0);
    for (const Decoded& d : sink.events) {
      CHECK(d.event.process().pid() == pid);
      CHECK(d.event.process().start_ns() > 0);
      CHECK(d.event.source() == v1::NETWORK);
      CHECK(d.cgroup_id == session->id());
    }
    return pid;
  }
  const Event& At(size_t i) const { return sink.events.at(i).event; }
};

sockaddr_in Ipv4(const char* address, uint16_t port) {
  sockaddr_in sa{};
  sa.sin_family = AF_INET;
  sa.sin_port = htons(port);
  inet_pton(AF_INET, address, &sa.sin_addr);
  return sa;
}

sockaddr_in6 Ipv6(const char* address, uint16_t port) {
  sockaddr_in6 sa{};
  sa.sin6_family = AF_INET6;
  sa.sin6_port = htons(port);
  inet_pton(AF_INET6, address, &sa.sin6_addr);
  return sa;
}

template <typename Address>
int Connect(int fd, const Address& address) {
  return connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
}

// A listener outside the session: its port, and the socket to keep it.
std::pair<UniqueFd, uint16_t> Listener(int backlog = 8) {
  UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = Ipv4("127.0.0.1", 0);
  socklen_t length = sizeof(address);
  REQUIRE(bind(fd.get(), reinterpret_cast<sockaddr*>(&address), length) == 0);
  REQUIRE(listen(fd.get(), backlog) == 0);
  REQUIRE(getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &length) == 0);
  return {std::move(fd), ntohs(address.sin_port)};
}

TEST_CASE("a TCP connect is an attempt and its outcome, of one flow") {
  Rig rig;
  auto [listener, port] = Listener();
  rig.Run(2, [port = port] { return Connect(socket(AF_INET, SOCK_STREAM, 0), Ipv4("127.0.0.1", port)); });
  CHECK(rig.At(0).kind() == v1::CONNECT);
  CHECK(rig.At(0).net().protocol() == "tcp");
  CHECK(rig.At(0).net().address() == "127.0.0.1");
  CHECK(rig.At(0).net().port() == port);
  CHECK(rig.At(0).net().result() == v1::Net::IN_PROGRESS);
  CHECK(rig.At(1).net().result() == v1::Net::OK);
  CHECK(rig.At(1).net().address() == "127.0.0.1");
  CHECK(rig.At(1).net().flow() == rig.At(0).net().flow());
  CHECK(rig.At(0).net().flow() != 0);
}

TEST_CASE("a refused connect says ECONNREFUSED") {
  Rig rig;
  auto [listener, port] = Listener();
  listener.Reset();
  rig.Run(2, [port = port] {
    return Connect(socket(AF_INET, SOCK_STREAM, 0), Ipv4("127.0.0.1", port)) == -1 && errno == ECONNREFUSED
               ? 0
               : 1;
  });
  CHECK(rig.At(1).net().result() == v1::Net::FAILED);
  CHECK(rig.At(1).net().error() == ECONNREFUSED);
}

TEST_CASE("a connect that the program gives up says ECANCELED") {
  Rig rig;
  auto [listener, port] = Listener(0);
  std::vector<UniqueFd> fill;  // the accept queue is full: no more SYN is answered
  for (int i = 0; i < 4; ++i) {
    fill.emplace_back(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    Connect(fill.back().get(), Ipv4("127.0.0.1", port));
  }
  rig.Run(2, [port = port] {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    return Connect(fd, Ipv4("127.0.0.1", port)) == -1 && errno == EINPROGRESS ? close(fd) : 1;
  });
  CHECK(rig.At(1).net().error() == ECANCELED);
}

TEST_CASE("IPv6 and IPv4 inside IPv6 are shown as what they are") {
  Rig rig;
  auto [listener, port] = Listener();
  rig.Run(4, [port = port] {
    Connect(socket(AF_INET6, SOCK_STREAM, 0), Ipv6("::1", port));  // nobody listens there
    return Connect(socket(AF_INET6, SOCK_STREAM, 0), Ipv6("::ffff:127.0.0.1", port));
  });
  CHECK(rig.At(0).net().address() == "::1");
  CHECK(rig.At(1).net().error() == ECONNREFUSED);
  CHECK(rig.At(2).net().address() == "127.0.0.1");
  CHECK(rig.At(3).net().result() == v1::Net::OK);
}

TEST_CASE("bind says what was asked for, listen what it became") {
  Rig rig;
  rig.Run(3, [] {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    const sockaddr_in any = Ipv4("127.0.0.1", 0);
    if (bind(fd, reinterpret_cast<const sockaddr*>(&any), sizeof(any)) != 0) return 1;
    if (listen(fd, 1) != 0) return 2;
    return listen(socket(AF_INET6, SOCK_STREAM, 0), 1);  // never bound
  });
  CHECK(rig.At(0).kind() == v1::BIND);
  CHECK(rig.At(0).net().port() == 0);
  CHECK(rig.At(0).as_asked());
  CHECK(rig.At(1).kind() == v1::LISTEN);
  CHECK(rig.At(1).net().address() == "127.0.0.1");
  CHECK(rig.At(1).net().port() > 0);
  CHECK(rig.At(2).kind() == v1::LISTEN);
  CHECK(rig.At(2).net().address() == "::");
  CHECK(rig.At(2).net().port() > 0);
}

TEST_CASE("datagrams are recorded per send, or once when connected") {
  Rig rig;
  rig.Run(4, [] {
    const int fd = socket(AF_INET, SOCK_DGRAM, 0);
    const sockaddr_in to = Ipv4("127.0.0.1", 9);
    for (int i = 0; i < 2; ++i) {
      if (sendto(fd, "x", 1, 0, reinterpret_cast<const sockaddr*>(&to), sizeof(to)) != 1) return 1;
    }
    const int other = socket(AF_INET6, SOCK_DGRAM, 0);
    const sockaddr_in6 mapped = Ipv6("::ffff:127.0.0.1", 9);
    if (sendto(other, "x", 1, 0, reinterpret_cast<const sockaddr*>(&mapped), sizeof(mapped)) != 1) return 2;
    const int connected = socket(AF_INET, SOCK_DGRAM, 0);
    if (Connect(connected, to) != 0 || send(connected, "x", 1, 0) != 1) return 3;
    return 0;
  });
  for (size_t i : {0u, 1u, 2u}) {
    CHECK(rig.At(i).kind() == v1::SEND);
    CHECK(rig.At(i).net().protocol() == "udp");
    CHECK(rig.At(i).net().address() == "127.0.0.1");
    CHECK(rig.At(i).net().port() == 9);
  }
  CHECK(rig.At(3).kind() == v1::CONNECT);
  CHECK(rig.At(3).net().result() == v1::Net::NOT_KNOWN);
}

int UnixConnect(int type, absl::string_view name) {
  sockaddr_un sa{};
  sa.sun_family = AF_UNIX;
  std::memcpy(sa.sun_path, name.data(), name.size());
  const socklen_t length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
  return connect(socket(AF_UNIX, type, 0), reinterpret_cast<sockaddr*>(&sa), length);
}

TEST_CASE("unix sockets are recorded with absolute and abstract names") {
  Rig rig;
  if (!rig.probe->Inactive().empty()) {
    WARN(rig.probe->Inactive()[0]);
    CHECK(rig.probe->Inactive()[0] == "unix_connect: not in this kernel (needs 6.7)");
    return;
  }
  char directory[] = "/tmp/agentmon-test-XXXXXX";
  REQUIRE(mkdtemp(directory) != nullptr);
  rig.Run(5, [directory] {
    if (chdir(directory) != 0 || mkdir("deep", 0700) != 0 || chdir("deep") != 0) return 1;
    UnixConnect(SOCK_STREAM, absl::string_view("/nowhere/at all", 15));  // no NUL at the end
    UnixConnect(SOCK_STREAM, absl::string_view("rel.sock\0", 9));
    UnixConnect(SOCK_STREAM, absl::string_view("\0abs\0tract\xff", 11));
    UnixConnect(SOCK_DGRAM, std::string(108, 'n'));
    sockaddr_un sa{};
    sa.sun_family = AF_UNIX;
    std::strcpy(sa.sun_path, "/dev/nolog");
    sendto(socket(AF_UNIX, SOCK_DGRAM, 0), "x", 1, 0, reinterpret_cast<sockaddr*>(&sa), sizeof(sa));
    return 0;
  });
  std::filesystem::remove_all(directory);
  CHECK(rig.At(0).kind() == v1::UNIX_CONNECT);
  CHECK(rig.At(0).unix().path() == "/nowhere/at all");
  CHECK_FALSE(rig.At(0).unix().datagram());
  CHECK(rig.At(1).unix().path() == absl::StrCat(directory, "/deep/rel.sock"));
  CHECK(rig.At(2).unix().path() == std::string("@abs\0tract\xff", 11));
  CHECK(rig.At(2).unix().abstract());
  CHECK(rig.At(3).unix().path() == absl::StrCat(directory, "/deep/", std::string(108, 'n')));
  CHECK(rig.At(3).unix().datagram());
  CHECK(rig.At(4).kind() == v1::UNIX_SEND);
  CHECK(rig.At(4).unix().path() == "/dev/nolog");
  CHECK(rig.At(4).as_asked());
}

TEST_CASE("a neighbour outside the sessions is not recorded") {
  Rig rig;
  auto [listener, port] = Listener();
  TestCgroup stranger(rig.base->path());  // below the base, but no session
  const pid_t pid = RunIn(
      *stranger, [port = port] { return Connect(socket(AF_INET, SOCK_STREAM, 0), Ipv4("127.0.0.1", port)); });
  REQUIRE(WaitFor(pid) == 0);
  rig.Run(2, [port = port] { return Connect(socket(AF_INET, SOCK_STREAM, 0), Ipv4("127.0.0.1", port)); });
}

}  // namespace
}  // namespace agentmon
