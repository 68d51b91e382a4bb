// The programs that judge connects, by the gate that feeds them: lists, reloads, names, the resolver.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/policy/testing/snapshots.h"
#include "daemon/probe/network_probe.h"
#include "tests/host/kernel_fixture.h"

namespace agentmon {
namespace {

using policy::LayerKind;

std::shared_ptr<const policy::Snapshot> Base(absl::string_view rules) { return policy::MakeBase(rules); }

policy::Address At(absl::string_view text) { return *policy::ParseAddress(text); }

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
    INFO(probe->enforceable());
    REQUIRE(probe->enforceable().ok());
    REQUIRE(ring->AddSession(session->id()).ok());
    REQUIRE(probe->Attach(sink).ok());
  }
  ~Rig() { probe->RemoveCgroup(session->id()); }

  void Enforce(absl::string_view rules) {
    const absl::Status set = probe->Enforce(session->id(), Base(rules));
    INFO(set);
    REQUIRE(set.ok());
  }
  NetworkGate& gate() { return *probe->gate(); }
  int Run(const std::function<int()>& body) {
    const int status = WaitFor(RunIn(*session, body));
    REQUIRE(WIFEXITED(status));
    return WEXITSTATUS(status);
  }
};

struct Destination {
  sockaddr_storage storage{};
  socklen_t size = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  int family() const { return storage.ss_family; }
};

// "127.0.0.1" or "::1", as it is written: ::ffff:127.0.0.1 is an IPv6 destination.
Destination To(const std::string& address, uint16_t port) {
  Destination out;
  if (address.find(':') == std::string::npos) {
    auto* v4 = reinterpret_cast<sockaddr_in*>(&out.storage);
    v4->sin_family = AF_INET;
    v4->sin_port = htons(port);
    Must(inet_pton(AF_INET, address.c_str(), &v4->sin_addr) == 1, "address");
    out.size = sizeof(*v4);
  } else {
    auto* v6 = reinterpret_cast<sockaddr_in6*>(&out.storage);
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(port);
    Must(inet_pton(AF_INET6, address.c_str(), &v6->sin6_addr) == 1, "address");
    out.size = sizeof(*v6);
  }
  return out;
}

std::string Text(const sockaddr_storage& from) {
  char text[INET6_ADDRSTRLEN] = "";
  if (from.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(from);
    inet_ntop(AF_INET, &v4.sin_addr, text, sizeof(text));
    return absl::StrCat(text, " ", ntohs(v4.sin_port));
  }
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(from);
  inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof(text));
  return absl::StrCat(text, " ", ntohs(v6.sin6_port));
}

int ErrorOf(ssize_t result) { return result < 0 ? errno : 0; }

// The errno of a TCP connect that nobody waits for; EINPROGRESS and ECONNREFUSED mean that it was let go.
int TcpError(const Destination& to) {
  const UniqueFd fd(socket(to.family(), SOCK_STREAM | SOCK_NONBLOCK, 0));
  return ErrorOf(connect(fd.get(), to.get(), to.size));
}
bool TcpPasses(const Destination& to) { return TcpError(to) != EPERM; }
int UdpError(const Destination& to) {
  const UniqueFd fd(socket(to.family(), SOCK_DGRAM, 0));
  return ErrorOf(sendto(fd.get(), "x", 1, 0, to.get(), to.size));
}

}  // namespace

TEST_CASE("spellings of one address are one address, for connections and datagrams") {
  Rig rig;
  struct Try {
    const char* address;
    bool denied;
  };
  const std::vector<Try> tries = {{"127.0.0.2", false},
                                  {"127.0.0.3", true},
                                  {"::ffff:127.0.0.2", false},
                                  {"::ffff:127.0.0.3", true},
                                  {"::1", true},
                                  {"0.0.0.0", true},
                                  {"::", true},
                                  {"64:ff9b::7f00:3", true},
                                  {"::127.0.0.3", true}};
  const auto run = [&](bool enforced) {
    for (const Try& t : tries) {
      CAPTURE(t.address, enforced);
      const Destination to = To(t.address, 40001);
      CHECK((rig.Run([&] { return TcpError(to); }) == EPERM) == (enforced && t.denied));
      CHECK((rig.Run([&] { return UdpError(to); }) == EPERM) == (enforced && t.denied));
    }
  };
  run(false);
  rig.Enforce("network_rules: [{name: one, cidrs: [127.0.0.2], decision: allow}]\n");
  run(true);
}

TEST_CASE("what the kernel denied is what its record says") {
  Rig rig;
  rig.Enforce(R"(
defaults: {network: allow}
network_rules:
  - {name: some, ports: ["41000-41010"], protocol: udp, decision: allow}
  - {name: three, cidrs: [127.0.0.3], decision: deny}
)");
  CHECK(rig.Run([] { return TcpError(To("127.0.0.3", 41005)); }) == EPERM);
  CHECK(rig.Run([] { return UdpError(To("127.0.0.3", 41005)); }) == 0);
  CHECK(rig.Run([] { return UdpError(To("127.0.0.3", 41011)); }) == EPERM);
  CHECK(rig.Run([] { return TcpPasses(To("127.0.0.4", 41005)) ? 0 : 1; }) == 0);
  REQUIRE(rig.runner.RunUntil([&] { return rig.sink.events.size() >= 5; }, absl::Seconds(5)));
  const Decoded& first = rig.sink.events[0];
  CHECK(first.verdict.verdict == AM_VERDICT_DENIED);
  CHECK(first.event.net().error() == EPERM);
  const v1::Judgement said = rig.gate().Describe(rig.session->id(), first.verdict, policy::Subject());
  CHECK(said.rule() == "three");
  CHECK(said.enforced());
  CHECK(said.mechanism() == "cgroup_bpf");
  CHECK(said.error() == EPERM);
  CHECK(rig.sink.events[1].verdict.verdict == AM_VERDICT_ALLOWED);
}

TEST_CASE("every way to send to an address is judged") {
  Rig rig;
  const Destination denied = To("127.0.0.3", 40002), allowed = To("127.0.0.2", 40002);
  const std::map<std::string, std::function<int(const Destination&)>> ways = {
      {"sendmsg",
       [](const Destination& to) {
         iovec data{const_cast<char*>("x"), 1};
         msghdr message{};
         message.msg_name = const_cast<sockaddr*>(to.get());
         message.msg_namelen = to.size;
         message.msg_iov = &data;
         message.msg_iovlen = 1;
         return ErrorOf(sendmsg(socket(AF_INET, SOCK_DGRAM, 0), &message, 0));
       }},
      {"sendmmsg",
       [](const Destination& to) {
         iovec data{const_cast<char*>("x"), 1};
         mmsghdr messages[2]{};
         for (mmsghdr& m : messages) {
           m.msg_hdr.msg_name = const_cast<sockaddr*>(to.get());
           m.msg_hdr.msg_namelen = to.size;
           m.msg_hdr.msg_iov = &data;
           m.msg_hdr.msg_iovlen = 1;
         }
         return ErrorOf(sendmmsg(socket(AF_INET, SOCK_DGRAM, 0), messages, 2, 0));
       }},
      {"connected datagrams",
       [](const Destination& to) {
         return ErrorOf(connect(socket(AF_INET, SOCK_DGRAM, 0), to.get(), to.size));
       }},
      {"a connected datagram socket that names another destination",
       [](const Destination& to) {
         const int fd = socket(AF_INET, SOCK_DGRAM, 0);
         const Destination first = To("127.0.0.2", 40002);
         if (connect(fd, first.get(), first.size) != 0) return 200;
         return ErrorOf(sendto(fd, "x", 1, 0, to.get(), to.size));
       }},
      {"MSG_FASTOPEN",
       [](const Destination& to) {
         const int error =
             ErrorOf(sendto(socket(AF_INET, SOCK_STREAM, 0), "x", 1, MSG_FASTOPEN, to.get(), to.size));
         return error == ECONNREFUSED ? 0 : error;
       }},
      {"TCP_FASTOPEN_CONNECT",
       [](const Destination& to) {
         const int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
         setsockopt(fd, IPPROTO_TCP, TCP_FASTOPEN_CONNECT, &one, sizeof(one));
         const int error = ErrorOf(connect(fd, to.get(), to.size));
         return error == ECONNREFUSED ? 0 : error;
       }},
      {"UDP-Lite",
       [](const Destination& to) {
         const int fd = socket(AF_INET, SOCK_DGRAM, IPPROTO_UDPLITE);
         if (fd < 0) return to.get()->sa_data[5] == 3 ? EPERM : 0;  // not in this kernel
         return ErrorOf(sendto(fd, "x", 1, 0, to.get(), to.size));
       }},
  };
  for (const auto& [name, way] : ways) {
    CAPTURE(name);
    CHECK(rig.Run([&, way = way] { return way(allowed); }) == 0);
  }
  rig.Enforce("network_rules: [{name: one, cidrs: [127.0.0.2], decision: allow}]\n");
  for (const auto& [name, way] : ways) {
    CAPTURE(name);
    CHECK(rig.Run([&, way = way] { return way(denied); }) == EPERM);
    CHECK(rig.Run([&, way = way] { return way(allowed); }) == 0);
  }
}

TEST_CASE("sockets whose traffic no hook sees are refused where something is denied") {
  Rig rig;
  const auto raw = [] { return ErrorOf(socket(AF_INET, SOCK_RAW, IPPROTO_ICMP)); };
  const auto raw6 = [] { return ErrorOf(socket(AF_INET6, SOCK_RAW, IPPROTO_ICMPV6)); };
  const auto multipath = [] { return ErrorOf(socket(AF_INET, SOCK_STREAM, 262)); };
  CHECK(rig.Run(raw) == 0);
  const int before = rig.Run(multipath);  // not in every kernel
  rig.Enforce("defaults: {network: allow}\n");
  CHECK(rig.Run(raw) == 0);
  rig.Enforce(
      "defaults: {network: allow}\nnetwork_rules: [{name: one, cidrs: [10.0.0.0/8], decision: deny}]\n");
  CHECK(rig.Run(raw) == EPERM);
  CHECK(rig.Run(raw6) == EPERM);
  if (before == 0) CHECK(rig.Run(multipath) == EPERM);
  CHECK(rig.Run([] { return ErrorOf(socket(AF_INET6, SOCK_STREAM, 0)); }) == 0);
  REQUIRE(rig.runner.RunUntil([&] { return rig.sink.Count(v1::CALL) >= 2; }, absl::Seconds(5)));
  CHECK(rig.sink.Of(v1::CALL)[0].call().name() == "socket");
}

TEST_CASE("a sub-cgroup of a session is the session, a neighbour is free") {
  Rig rig;
  rig.Enforce("network_rules: [{name: one, cidrs: [127.0.0.2], decision: allow}]\n");
  const Destination to = To("127.0.0.3", 40003);
  TestCgroup below(rig.session->path()), neighbour(rig.base->path());
  CHECK(WEXITSTATUS(WaitFor(RunIn(*below, [&] { return TcpError(to); }))) == EPERM);
  CHECK(WEXITSTATUS(WaitFor(RunIn(*neighbour, [&] { return TcpPasses(to) ? 0 : 1; }))) == 0);
}

TEST_CASE("no moment of a reload has an answer that neither policy gives") {
  Rig rig;
  // .2 is allowed by both, .3 denied by both, .4 by the first alone.
  const std::string many = [] {
    std::string text;
    for (int i = 0; i < 60; ++i)
      absl::StrAppend(&text, "  - {name: r", i, ", cidrs: [10.", i, ".0.0/16], decision: deny}\n");
    return text;
  }();
  const std::string two = "  - {name: two, cidrs: [127.0.0.2], ports: [\"1-50000\"], decision: allow}\n";
  const auto first = Base(absl::StrCat("network_rules:\n", many, two));
  const auto second = Base(
      absl::StrCat("network_rules:\n", two, many, "  - {name: four, cidrs: [127.0.0.4], decision: allow}\n"));
  REQUIRE(rig.probe->Enforce(rig.session->id(), first).ok());
  int ends[2];
  REQUIRE(pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0);
  const pid_t child = RunIn(*rig.session, [&] {
    const Destination always = To("127.0.0.2", 40004), never = To("127.0.0.3", 40004);
    char end;
    for (int i = 0; i < 50'000'000 && read(ends[0], &end, 1) < 0; ++i) {
      if (UdpError(always) == EPERM) return 1;
      if (UdpError(never) != EPERM) return 2;
    }
    return 0;
  });
  const char* wanted = std::getenv("AGENTMON_RELOADS");
  const int reloads = wanted != nullptr ? std::atoi(wanted) : 300;
  for (int i = 0; i < reloads; ++i) {
    REQUIRE(rig.probe->Enforce(rig.session->id(), i % 2 == 0 ? second : first).ok());
    rig.ring->Drain();
    rig.sink.events.clear();
  }
  Must(write(ends[1], "e", 1) == 1, "end");
  CHECK(WEXITSTATUS(WaitFor(child)) == 0);
  close(ends[0]);
  close(ends[1]);
  rig.Enforce("defaults: {network: allow}\n");
  CHECK(rig.Run([] { return UdpError(To("127.0.0.3", 40004)); }) == 0);
}

TEST_CASE("sessions with equal rules share them, and what is left is taken back") {
  Rig rig;
  const char* rules = "network_rules: [{name: one, cidrs: [127.0.0.2], decision: allow}]\n";
  rig.Enforce(rules);
  const size_t once = rig.gate().rules_in_use();
  TestCgroup other(rig.base->path());
  REQUIRE(rig.ring->AddSession(other->id()).ok());
  REQUIRE(rig.probe->Enforce(other->id(), Base(rules)).ok());
  CHECK(rig.gate().rules_in_use() == once);
  rig.probe->RemoveCgroup(other->id());
  CHECK(rig.gate().sessions() == 1);
}

TEST_CASE("a policy that does not fit closes a session that had another, and starts none") {
  Rig rig;
  std::string text = "network_rules:\n";
  for (int i = 0; i < 5000; ++i)
    absl::StrAppend(&text, "  - {ports: [", i + 1, "], protocol: udp, decision: deny}\n");
  CHECK(absl::IsResourceExhausted(rig.probe->Enforce(rig.session->id(), Base(text))));
  CHECK(rig.gate().sessions() == 0);
  const Destination to = To("127.0.0.2", 40005);
  CHECK(rig.Run([&] { return UdpError(to); }) == 0);
  rig.Enforce("defaults: {network: allow}\n");
  CHECK(rig.Run([&] { return UdpError(to); }) == 0);
  CHECK_FALSE(rig.probe->Enforce(rig.session->id(), Base(text)).ok());
  CHECK(rig.Run([&] { return UdpError(to); }) == EPERM);
  rig.Enforce("defaults: {network: allow}\n");
  CHECK(rig.Run([&] { return UdpError(to); }) == 0);
}

TEST_CASE("a name opens an address for its time, to its session and port, through a reload") {
  Rig rig;
  const std::string rules =
      "network_rules: [{name: site, domains: ['*.example.com'], ports: [443], decision: allow}]\n";
  const Destination web = To("127.0.0.9", 443), other = To("127.0.0.9", 80);
  CHECK(absl::IsNotFound(rig.gate().OpenAddress(rig.session->id(), "a.example.com", At("127.0.0.9"), 1)));
  rig.Enforce(rules);
  const auto open = [&](absl::Duration time) {
    return rig.gate().OpenAddress(rig.session->id(), "A.example.com.", At("::ffff:127.0.0.9"),
                                  rig.clock.BootNs() + absl::ToInt64Nanoseconds(time));
  };
  CHECK(rig.Run([&] { return UdpError(web); }) == EPERM);
  REQUIRE(open(absl::Milliseconds(-1)).ok());
  CHECK(rig.Run([&] { return UdpError(web); }) == EPERM);
  REQUIRE(open(absl::Hours(1)).ok());
  CHECK(rig.Run([&] { return UdpError(web); }) == 0);
  CHECK(rig.Run([&] { return UdpError(other); }) == EPERM);
  rig.Enforce(absl::StrCat(rules, "defaults: {network: ask}\nposture: enforce\n"));
  rig.Enforce(
      "network_rules:\n  - {name: x, cidrs: [10.0.0.0/8], decision: deny}\n"
      "  - {name: site, domains: ['*.example.com'], ports: [443], decision: allow}\n");
  CHECK(rig.Run([&] { return UdpError(web); }) == 0);
  rig.gate().CloseName(rig.session->id(), "a.example.com");
  CHECK(rig.Run([&] { return UdpError(web); }) == EPERM);
}

// A server that answers what it gets, on both families of the loopback.
class Echo {
 public:
  explicit Echo(const std::string& address) {
    for (const int type : {SOCK_DGRAM, SOCK_STREAM}) {
      Destination at = To(address, port_);
      UniqueFd fd(socket(at.family(), type | SOCK_CLOEXEC, 0));
      Must(bind(fd.get(), at.get(), at.size) == 0, "bind");
      Must(getsockname(fd.get(), reinterpret_cast<sockaddr*>(&at.storage), &at.size) == 0, "name");
      port_ = ntohs(reinterpret_cast<const sockaddr_in&>(at.storage).sin_port);
      (type == SOCK_DGRAM ? udp_ : tcp_) = std::move(fd);
    }
    Must(listen(tcp_.get(), 8) == 0, "listen");
    thread_ = std::thread([this] { Serve(); });
  }
  ~Echo() {
    stop_ = true;
    thread_.join();
  }
  uint16_t port() const { return port_; }

 private:
  void Serve() {
    while (!stop_) {
      pollfd fds[] = {{udp_.get(), POLLIN, 0}, {tcp_.get(), POLLIN, 0}};
      if (poll(fds, 2, 20) <= 0) continue;
      sockaddr_storage from{};
      socklen_t size = sizeof(from);
      char bytes[64];
      if (fds[0].revents != 0) {
        const ssize_t n =
            recvfrom(udp_.get(), bytes, sizeof(bytes), 0, reinterpret_cast<sockaddr*>(&from), &size);
        if (n > 0)
          sendto(udp_.get(), bytes, static_cast<size_t>(n), 0, reinterpret_cast<sockaddr*>(&from), size);
      }
      if (fds[1].revents != 0) UniqueFd(accept4(tcp_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    }
  }
  UniqueFd udp_, tcp_;
  uint16_t port_ = 0;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

TEST_CASE("port 53 of a session is led to its resolver, and looks like the server that was asked") {
  Rig rig;
  const Echo v4("127.0.0.1"), v6("::1");
  rig.Enforce("network_rules: [{name: none, cidrs: [10.0.0.0/8], decision: allow}]\n");
  // The server, as the program names it, and what its replies and its peer must look like.
  struct Way {
    const char* server;
    const char* shown;
  };
  const std::vector<Way> ways = {{"192.0.2.53", "192.0.2.53 53"},
                                 {"2001:db8::53", "2001:db8::53 53"},
                                 {"::ffff:192.0.2.53", "::ffff:192.0.2.53 53"}};
  const auto ask = [](const Destination& to, const std::string& shown, int way) {
    timeval patience{5, 0};
    const UniqueFd fd(socket(to.family(), way == 2 ? SOCK_STREAM : SOCK_DGRAM, 0));
    setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    sockaddr_storage from{};
    socklen_t size = sizeof(from);
    char byte = 0;
    if (way == 0) {
      if (sendto(fd.get(), "q", 1, 0, to.get(), to.size) != 1) return errno;
      if (recvfrom(fd.get(), &byte, 1, 0, reinterpret_cast<sockaddr*>(&from), &size) != 1) return 201;
    } else {
      if (connect(fd.get(), to.get(), to.size) != 0) return errno;
      if (way == 1 && (send(fd.get(), "q", 1, 0) != 1 || recv(fd.get(), &byte, 1, 0) != 1)) return 202;
      if (getpeername(fd.get(), reinterpret_cast<sockaddr*>(&from), &size) != 0) return 203;
    }
    return Text(from) == shown ? 0 : 204;
  };
  for (const Way& way : ways) {
    const Destination to = To(way.server, 53);
    CHECK(rig.Run([&] { return ask(to, way.shown, 0); }) == EPERM);  // not led anywhere: judged by address
  }
  ResolverTarget target;
  target.v4 = At("127.0.0.1");
  target.v4_port = v4.port();
  target.v6 = At("::1");
  target.v6_port = v6.port();
  REQUIRE(rig.gate().SetResolver(rig.session->id(), target).ok());
  for (const Way& way : ways) {
    const Destination to = To(way.server, 53);
    for (int kind = 0; kind < 3; ++kind) {
      CAPTURE(way.server, kind);
      CHECK(rig.Run([&] { return ask(to, way.shown, kind); }) == 0);
    }
    CHECK(rig.Run([&] { return UdpError(To(way.server, 54)); }) == EPERM);
  }
  REQUIRE(rig.runner.RunUntil([&] { return !rig.sink.events.empty(); }, absl::Seconds(5)));
  rig.ring->Drain();
  bool found = false;
  for (const Decoded& record : rig.sink.events) {
    if (record.verdict.verdict != AM_VERDICT_LED) continue;
    const auto socket = rig.gate().FindRedirected(record.event.net().flow());
    REQUIRE(socket.ok());
    CHECK(socket->cgroup_id == rig.session->id());
    CHECK(socket->port == 53);
    CHECK(policy::ToString(socket->server) == record.event.net().address());
    found = true;
  }
  CHECK(found);
  CHECK(absl::IsNotFound(rig.gate().FindRedirected(1).status()));
  REQUIRE(rig.gate().SetResolver(rig.session->id(), ResolverTarget()).ok());
  CHECK(rig.Run([&] { return UdpError(To("192.0.2.53", 53)); }) == EPERM);
}

}  // namespace agentmon
