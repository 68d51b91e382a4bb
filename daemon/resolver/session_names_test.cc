#include "daemon/resolver/session_names.h"

#include <catch2/catch.hpp>

#include "daemon/resolver/resolver_fixture.h"

namespace agentmon {
namespace {

constexpr uint64_t kSession = 42;
constexpr char kRules[] = R"(
network_rules:
  - {name: a, domains: [a.example], ports: [443], decision: allow}
  - {name: b, domains: [b.example], ports: [22], decision: allow}
)";

class FakeGate : public NameGate {
 public:
  absl::Status OpenAddress(uint64_t cgroup_id, absl::string_view name, const policy::Address& address,
                           int64_t) override {
    absl::MutexLock lock(&mutex);
    opened.push_back(absl::StrCat(cgroup_id, " ", name, " ", policy::ToString(address)));
    return absl::OkStatus();
  }
  void Settle(uint64_t) override {}
  void CloseName(uint64_t, absl::string_view) override {}
  absl::Status SetResolver(uint64_t, const ResolverTarget& to) override {
    absl::MutexLock lock(&mutex);
    target = to;
    return absl::OkStatus();
  }
  absl::StatusOr<RedirectedSocket> FindRedirected(uint64_t cookie) const override {
    absl::MutexLock lock(&mutex);
    const auto it = led.find(cookie);
    if (it == led.end()) return absl::NotFoundError("not led");
    return RedirectedSocket{it->second, *policy::ParseAddress("192.0.2.53"), 53, 4711};
  }

  mutable absl::Mutex mutex;
  std::vector<std::string> opened;
  ResolverTarget target;
  std::map<uint64_t, uint64_t> led;  // cookie -> cgroup
};

std::vector<uint8_t> OneAddress(const DnsQuery& query, bool) {
  return DnsBytes()
      .Header(0, 0x8180, 1, 1)
      .Question(query.question.name, query.question.type)
      .Record(query.question.name, kDnsA, 60, DnsBytes::V4({192, 0, 2, 1}))
      .Take();
}

struct Rig {
  explicit Rig(absl::string_view rules) : snapshot(policy::MakeBase(rules)) {
    Resolver::Options options;
    options.upstream.servers = server.servers();
    options.hosts_file = "/nonexistent/hosts";
    auto created = SessionNames::Create(
        gate, clock,
        [this](uint64_t, const DnsClient& client, int64_t, const Event& event) {
          absl::MutexLock lock(&gate.mutex);
          told.push_back(absl::StrCat(event.dns().name(), " ",
                                      client.uid == ::getuid() && client.pid == 4711 ? "ours" : "not ours"));
        },
        options);
    REQUIRE(created.ok());
    names = *std::move(created);
  }
  // A socket whose datagrams were led to the resolver, for this session.
  UniqueFd Led(uint64_t session) {
    UniqueFd fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    const sockaddr_in to = Loopback4(gate.target.v4_port);
    REQUIRE(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof(to)) == 0);
    uint64_t cookie = 0;
    socklen_t size = sizeof(cookie);
    REQUIRE(::getsockopt(fd.get(), SOL_SOCKET, SO_COOKIE, &cookie, &size) == 0);
    absl::MutexLock lock(&gate.mutex);
    if (session != 0) gate.led[cookie] = session;
    return fd;
  }

  FakeServer server{OneAddress};
  FakeGate gate;
  SystemClock clock;
  std::shared_ptr<const policy::Snapshot> snapshot;
  std::vector<std::string> told;
  std::unique_ptr<SessionNames> names;
};

}  // namespace

TEST_CASE("only sockets that were led to this session's listener are served") {
  Rig rig(kRules);
  REQUIRE(rig.names->SetPolicy(kSession, rig.snapshot).ok());
  const UniqueFd stranger = rig.Led(0), other = rig.Led(kSession + 1), ours = rig.Led(kSession);
  for (const int fd : {stranger.get(), other.get(), ours.get()})
    ResolverRig::Send(fd, Ask("a.example", kDnsA), false);
  CHECK(ResolverRig::Receive(ours.get(), "a.example", kDnsA, false).records ==
        std::vector<std::string>{"192.0.2.1"});
  CHECK_FALSE(Readable(stranger.get(), 0));
  CHECK_FALSE(Readable(other.get(), 0));
  absl::MutexLock lock(&rig.gate.mutex);
  CHECK(rig.gate.opened == std::vector<std::string>{"42 a.example 192.0.2.1"});
  CHECK(rig.told == std::vector<std::string>{"a.example ours"});
}

TEST_CASE("a connection has the name by which the policy lets it through, the newest of several") {
  Rig rig(kRules);
  REQUIRE(rig.names->SetPolicy(kSession, rig.snapshot).ok());
  const UniqueFd fd = rig.Led(kSession);
  for (const char* name : {"a.example", "b.example"}) {
    ResolverRig::Send(fd.get(), Ask(name, kDnsA), false);
    CHECK(ResolverRig::Receive(fd.get(), name, kDnsA, false).rcode == 0);
  }
  const policy::Address address = *policy::ParseAddress("192.0.2.1");
  const int64_t now = rig.clock.BootNs();
  const auto name_of = [&](uint16_t port) {
    return rig.names->NameOf(kSession, policy::ConnectSubject(address, port), now);
  };
  CHECK(name_of(443) == "a.example");
  CHECK(name_of(22) == "b.example");
  CHECK(name_of(80) == "b.example");
  CHECK(rig.names->NameOf(kSession, policy::ConnectSubject(*policy::ParseAddress("192.0.2.2"), 443), now)
            .empty());
  CHECK(rig.names->NameOf(kSession + 1, policy::ConnectSubject(address, 443), now).empty());
}

TEST_CASE("a policy that only records leads nothing, and one that is switched to it leads nothing any more") {
  const auto monitor =
      policy::MakeSnapshot({{policy::LayerKind::kBase, "version: 1\nname: m\nposture: monitor\n", "m.yaml"}});
  Rig rig(kRules);
  REQUIRE(rig.names->SetPolicy(kSession, monitor).ok());
  CHECK(rig.gate.target.v4_port == 0);
  REQUIRE(rig.names->SetPolicy(kSession, rig.snapshot).ok());
  const uint16_t port = rig.gate.target.v4_port;
  CHECK(port != 0);
  REQUIRE(rig.names->SetPolicy(kSession, monitor).ok());
  CHECK(rig.gate.target.v4_port == 0);
  REQUIRE(rig.names->SetPolicy(kSession, rig.snapshot).ok());
  CHECK(rig.gate.target.v4_port == port);
  rig.names->RemoveSession(kSession);
}

}  // namespace agentmon
