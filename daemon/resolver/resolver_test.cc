#include "daemon/resolver/resolver.h"

#include <catch2/catch.hpp>

#include "daemon/resolver/resolver_fixture.h"

namespace agentmon {
namespace {

using Records = std::vector<std::string>;

constexpr char kRules[] = R"(
network_rules:
  - {name: closed, domains: [closed.hosts.example], decision: deny, message: "not this one"}
  - {name: hosts, domains: ["**.hosts.example"], ports: [443], decision: allow}
)";

std::vector<uint8_t> Reply(const DnsQuery& query, const DnsBytes& records, uint16_t count,
                           uint16_t flags = 0x8180) {
  DnsBytes bytes;
  bytes.Header(0, flags, 1, count).Question(query.question.name, query.question.type);
  const std::vector<uint8_t> tail = records.Take();
  return bytes.Raw(absl::string_view(reinterpret_cast<const char*>(tail.data()), tail.size())).Take();
}

DnsBytes V4Record(const DnsQuery& query, std::initializer_list<uint8_t> address, uint32_t ttl = 60) {
  return DnsBytes().Record(query.question.name, kDnsA, ttl, DnsBytes::V4(address));
}

std::vector<uint8_t> OneAddress(const DnsQuery& query, bool) {
  if (query.question.type != kDnsA) return Reply(query, DnsBytes(), 0);
  return Reply(query, V4Record(query, {192, 0, 2, 1}), 1);
}

// The last event, once there are `count` of them.
Event LastEvent(ResolverRig& rig, size_t count = 1) {
  const absl::Time deadline = absl::Now() + absl::Milliseconds(kWaitMs);
  while (rig.host.events().size() < count && absl::Now() < deadline) absl::SleepFor(absl::Milliseconds(1));
  const std::vector<Event> events = rig.host.events();
  REQUIRE(events.size() >= count);
  return events.back();
}

}  // namespace

TEST_CASE(
    "an allowed name is answered by the host's server and opens its address; a denied one is not asked") {
  ResolverRig rig(kRules, OneAddress);
  const int64_t before = rig.clock.BootNs();
  const Got yes = rig.Ask("a.hosts.example");
  CHECK(yes.rcode == 0);
  CHECK(yes.records == Records{"192.0.2.1"});
  CHECK(rig.host.opened() == Records{"a.hosts.example=192.0.2.1"});
  CHECK(rig.host.until() >= before + 75'000'000'000);
  CHECK(rig.host.until() <= rig.clock.BootNs() + 75'000'000'000);
  CHECK(rig.resolver->NamesOf(ResolverRig::kSession, *policy::ParseAddress("192.0.2.1"), before) ==
        Records{"a.hosts.example"});
  const Event asked = LastEvent(rig);
  CHECK(asked.kind() == v1::DNS);
  CHECK(asked.dns().name() == "a.hosts.example");
  CHECK(asked.dns().type() == "A");
  CHECK(asked.dns().rcode() == "NOERROR");
  CHECK(asked.dns().protocol() == "udp");
  CHECK(asked.dns().server() == "192.0.2.53");
  CHECK(Records(asked.dns().answers().begin(), asked.dns().answers().end()) == Records{"192.0.2.1"});
  CHECK(asked.judgement().decision() == v1::ALLOW);
  CHECK(asked.judgement().rule() == "hosts");

  for (const char* name : {"closed.hosts.example", "other.example"}) {
    const Got no = rig.Ask(name);
    CHECK(no.rcode == 3);
    CHECK(no.records.empty());
  }
  CHECK(rig.server.asked() == 1);
  CHECK(rig.host.opened().size() == 1);
  const Event denied = rig.host.events()[1];
  CHECK(denied.dns().name() == "closed.hosts.example");
  CHECK(denied.dns().rcode() == "NXDOMAIN");
  CHECK(denied.judgement().decision() == v1::DENY);
  CHECK(denied.judgement().enforced());
  CHECK(denied.judgement().mechanism() == "resolver");
  CHECK(denied.judgement().rule() == "closed");
  CHECK(denied.judgement().message() == "not this one");
}

TEST_CASE("questions come by TCP and over IPv6 too, several on one connection, in any order of the answers") {
  ResolverRig rig(kRules, OneAddress);
  CHECK(rig.Ask("a.hosts.example", kDnsA, true).records == Records{"192.0.2.1"});
  CHECK(LastEvent(rig).dns().protocol() == "tcp");
  const UniqueFd many = rig.Tcp();
  std::vector<uint8_t> bytes;
  for (uint16_t id = 0; id < 40; ++id) {  // more than may be open at once
    const std::vector<uint8_t> one = Ask(absl::StrCat("n", id, ".hosts.example"), kDnsA, id);
    bytes.insert(bytes.end(), {static_cast<uint8_t>(one.size() >> 8), static_cast<uint8_t>(one.size())});
    bytes.insert(bytes.end(), one.begin(), one.end());
  }
  // In pieces that end anywhere.
  for (size_t at = 0; at < bytes.size(); at += 7)
    REQUIRE(::send(many.get(), bytes.data() + at, std::min<size_t>(7, bytes.size() - at), 0) > 0);
  REQUIRE(::shutdown(many.get(), SHUT_WR) == 0);
  std::set<int> ids;
  for (int i = 0; i < 40; ++i) {
    uint8_t length[2];
    ReadAll(many.get(), length, 2);
    std::vector<uint8_t> message(static_cast<size_t>(length[0]) << 8 | length[1]);
    ReadAll(many.get(), message.data(), message.size());
    ids.insert(message[0] << 8 | message[1]);
    CHECK((message[3] & 0xf) == 0);
  }
  CHECK(ids.size() == 40);
  uint8_t byte;
  REQUIRE(Readable(many.get()));
  CHECK(::recv(many.get(), &byte, 1, 0) == 0);  // it asked no more, so we end too
  if (rig.ports.port6 == 0) return;
  const UniqueFd six = rig.Udp(true, AF_INET6);
  ResolverRig::Send(six.get(), Ask("six.hosts.example", kDnsA), false);
  CHECK(ResolverRig::Receive(six.get(), "six.hosts.example", kDnsA, false).records == Records{"192.0.2.1"});
}

TEST_CASE("who was not led here gets no answer") {
  ResolverRig rig(kRules, OneAddress);
  const UniqueFd stranger = rig.Udp(false);
  ResolverRig::Send(stranger.get(), Ask("a.hosts.example", kDnsA), false);
  const UniqueFd connection = rig.Tcp(false);
  REQUIRE(Readable(connection.get()));
  uint8_t byte;
  CHECK(::recv(connection.get(), &byte, 1, 0) <= 0);
  // Both were looked at before this one is answered.
  CHECK(rig.Ask("a.hosts.example").rcode == 0);
  CHECK_FALSE(Readable(stranger.get(), 0));
  CHECK(rig.server.asked() == 1);
  CHECK(rig.host.events().size() == 1);
}

TEST_CASE("an answer that a server cuts is asked again by TCP, one that is too long for a program is cut") {
  ResolverRig rig(kRules, [](const DnsQuery& query, bool tcp) {
    if (!tcp) return Reply(query, DnsBytes(), 0, 0x8380);
    DnsBytes records;
    for (uint8_t i = 0; i < 80; ++i)
      records.Record(query.question.name, kDnsA, 60, DnsBytes::V4({192, 0, 2, i}));
    return Reply(query, records, 80);
  });
  const Got cut = rig.Ask("a.hosts.example");
  CHECK(cut.cut);
  CHECK(cut.records.empty());
  CHECK(rig.Ask("a.hosts.example", kDnsA, true).records.size() == 64);  // no more are opened
  CHECK(LastEvent(rig).dns().answers_size() == 16);
}

TEST_CASE("aliases are followed, and the address opens under the name that was asked for") {
  ResolverRig rig(kRules, [](const DnsQuery& query, bool) {
    DnsBytes records;
    records.Record(query.question.name, kDnsCname, 300, DnsBytes::NameData("edge.cdn.example"));
    records.Record("edge.cdn.example", kDnsAaaa, 300, "\x20\x01\x0d\xb8" + std::string(11, '\0') + "\x07");
    if (query.question.name != "edge.cdn.example") return Reply(query, records, 2);
    return Reply(query,
                 DnsBytes().Record("edge.cdn.example", kDnsAaaa, 300,
                                   "\x20\x01\x0d\xb8" + std::string(11, '\0') + "\x08"),
                 1);
  });
  CHECK(rig.Ask("edge.cdn.example", kDnsAaaa).rcode == 3);
  CHECK(rig.Ask("a.hosts.example", kDnsAaaa).records == Records{"edge.cdn.example", "2001:db8::7"});
  CHECK(rig.host.opened() == Records{"a.hosts.example=2001:db8::7"});
  // Programs keep the end of a chain: it is judged, and opened, as the name that has led to it.
  CHECK(rig.Ask("edge.cdn.example", kDnsAaaa).records == Records{"2001:db8::8"});
  CHECK(rig.host.opened().back() == "a.hosts.example=2001:db8::8");
  CHECK(rig.Ask("other.cdn.example", kDnsAaaa).rcode == 3);
}

TEST_CASE("a denied name stays denied when an allowed one leads to it") {
  ResolverRig rig(kRules, [](const DnsQuery& query, bool) {
    DnsBytes records;
    records.Record(query.question.name, kDnsCname, 300, DnsBytes::NameData("closed.hosts.example"));
    records.Record("closed.hosts.example", kDnsA, 300, DnsBytes::V4({192, 0, 2, 1}));
    return Reply(query, records, 2);
  });
  CHECK(rig.Ask("a.hosts.example").rcode == 0);
  CHECK(rig.Ask("closed.hosts.example").rcode == 3);
}

TEST_CASE("service bindings are answered with nothing, without asking") {
  ResolverRig rig(kRules, OneAddress);
  for (const uint16_t type : {kDnsHttps, kDnsSvcb}) {
    const Got got = rig.Ask("a.hosts.example", type);
    CHECK(got.rcode == 0);
    CHECK(got.records.empty());
  }
  CHECK(rig.server.asked() == 0);
  CHECK(rig.Ask("a.hosts.example", 255).rcode == 4);  // ANY
  CHECK(rig.Ask("a.hosts.example", 252).rcode == 4);  // a transfer
}

TEST_CASE("a public name that leads to this host is refused, and only the rest of an answer is opened") {
  ResolverRig rig(kRules, [](const DnsQuery& query, bool) {
    if (query.question.name == "all.hosts.example") return Reply(query, V4Record(query, {127, 0, 0, 1}), 1);
    if (query.question.name == "own.hosts.example") return Reply(query, V4Record(query, {203, 0, 113, 7}), 1);
    if (query.question.name == "other.hosts.example")
      return Reply(query, V4Record(query, {203, 0, 113, 8}), 1);
    DnsBytes records;
    records.Record(query.question.name, kDnsA, 60, DnsBytes::V4({169, 254, 169, 254}));
    records.Record(query.question.name, kDnsA, 60, DnsBytes::V4({192, 0, 2, 1}));
    return Reply(query, records, 2);
  });
  CHECK(rig.Ask("some.hosts.example").records == Records{"192.0.2.1"});
  const Event some = rig.host.events().at(0);
  CHECK(some.judgement().rule() == "rebinding");
  CHECK(some.judgement().enforced());
  CHECK(some.dns().answers(0) == "169.254.169.254");
  CHECK(rig.Ask("all.hosts.example").rcode == 3);
  CHECK(rig.host.opened() == Records{"some.hosts.example=192.0.2.1"});
  // A public address that this host has.
  CHECK(rig.Ask("own.hosts.example").rcode == 3);
  CHECK(rig.Ask("other.hosts.example").records == Records{"203.0.113.8"});
}

TEST_CASE("what servers do wrong ends as a failure, and opens nothing") {
  ResolverRig rig(kRules, [](const DnsQuery& query, bool) -> std::vector<uint8_t> {
    const std::string& name = query.question.name;
    if (name == "short.hosts.example") return {0, 0, 0x81, 0x80};
    if (name == "fails.hosts.example") return Reply(query, DnsBytes(), 0, 0x8182);
    if (name == "refuses.hosts.example") return Reply(query, DnsBytes(), 0, 0x8185);
    if (name == "other.hosts.example") {
      DnsQuery other = query;
      other.question.name = "evil.example";
      return Reply(other, V4Record(query, {192, 0, 2, 1}), 1);
    }
    if (name == "garbage.hosts.example") return Reply(query, DnsBytes().Pointer(0x3fff).Word(1).Word(1), 3);
    if (name == "circle.hosts.example") {
      return Reply(query, DnsBytes().Record(name, kDnsCname, 9, DnsBytes::NameData(name)), 1);
    }
    return {};  // silence
  });
  for (const char* name : {"short", "fails", "refuses", "other", "garbage", "circle", "silent"}) {
    CAPTURE(name);
    const Got got = rig.Ask(absl::StrCat(name, ".hosts.example"));
    CHECK(got.rcode == 2);
    CHECK(LastEvent(rig).dns().rcode() == "SERVFAIL");
    CHECK(LastEvent(rig).judgement().decision() == v1::ALLOW);
  }
  CHECK(rig.host.opened().empty());
}

TEST_CASE("a server that does not know EDNS is asked without it") {
  ResolverRig rig(kRules, [](const DnsQuery& query, bool tcp) {
    return query.edns ? Reply(query, DnsBytes(), 0, 0x8181) : OneAddress(query, tcp);
  });
  CHECK(rig.Ask("a.hosts.example").records == Records{"192.0.2.1"});
}

TEST_CASE("that a name is not there, or has no such record, is passed on") {
  ResolverRig rig(kRules, [](const DnsQuery& query, bool) {
    return Reply(query, DnsBytes(), 0, query.question.name == "gone.hosts.example" ? 0x8183 : 0x8180);
  });
  CHECK(rig.Ask("gone.hosts.example").rcode == 3);
  CHECK(LastEvent(rig).judgement().decision() == v1::ALLOW);
  CHECK(rig.Ask("empty.hosts.example").rcode == 0);
}

TEST_CASE("an address that cannot be opened is not given out") {
  ResolverRig rig(kRules, OneAddress);
  rig.host.SetFull();
  CHECK(rig.Ask("a.hosts.example").rcode == 2);
  CHECK(rig.resolver->NamesOf(ResolverRig::kSession, *policy::ParseAddress("192.0.2.1"), 0).empty());
}

TEST_CASE("a time to live of zero opens for the grace, a long one for an hour") {
  ResolverRig rig(kRules, [](const DnsQuery& query, bool) {
    const bool zero = query.question.name == "zero.hosts.example";
    return Reply(query, V4Record(query, {192, 0, 2, 1}, zero ? 0 : 1'000'000), 1);
  });
  const int64_t grace = 15'000'000'000, hour = 3'600'000'000'000;
  rig.Ask("zero.hosts.example");
  CHECK(rig.host.until() <= rig.clock.BootNs() + grace);
  CHECK(rig.host.until() > rig.clock.BootNs());
  rig.Ask("long.hosts.example");
  CHECK(rig.host.until() <= rig.clock.BootNs() + hour + grace);
  CHECK(rig.host.until() > rig.clock.BootNs() + hour);
}

TEST_CASE("open questions are bounded, and what comes beyond is told with its number") {
  ResolverRig rig(kRules, ResolverRig::NoAnswer, [](Resolver::Options& options) {
    options.questions.in_flight_per_session = 4;
    options.upstream.server_timeout = absl::Seconds(5);
  });
  std::vector<UniqueFd> waiting;
  for (int i = 0; i < 4; ++i) {
    waiting.push_back(rig.Udp());
    ResolverRig::Send(waiting.back().get(), Ask(absl::StrCat("w", i, ".hosts.example"), kDnsA), false);
  }
  const UniqueFd more = rig.Udp();
  for (int i = 0; i < 20; ++i) {
    ResolverRig::Send(more.get(), Ask("more.hosts.example", kDnsA), false);
    CHECK(ResolverRig::Receive(more.get(), "more.hosts.example", kDnsA, false).rcode == 2);
  }
  uint64_t told = 0;
  for (const Event& event : rig.host.events()) {
    CHECK(event.judgement().rule() == "too many open questions");
    told += event.count();
  }
  CHECK(told >= 1);
  CHECK(rig.host.events().size() <= 3);
}

TEST_CASE("a flood of questions is refused without a flood of events, and a name that is data is refused") {
  ResolverRig rig(kRules, OneAddress);
  const Got data = rig.Ask(absl::StrCat(std::string(60, 'a'), ".hosts.example"));
  CHECK(data.rcode == 5);
  CHECK(LastEvent(rig).judgement().rule() == "data in names");
  const UniqueFd fd = rig.Udp();
  int refused = 0;
  for (int i = 0; i < 700; ++i) {
    ResolverRig::Send(fd.get(), Ask("a.hosts.example", kDnsA), false);
    refused += ResolverRig::Receive(fd.get(), "a.hosts.example", kDnsA, false).rcode == 5;
  }
  CHECK(refused > 0);
  size_t floods = 0;
  for (const Event& event : rig.host.events()) floods += event.judgement().rule() == "too many questions";
  CHECK(floods >= 1);
  CHECK(floods < 20);
}

TEST_CASE(
    "connections are bounded, one with a message that is too long ends, and so does one that is garbage") {
  ResolverRig rig(kRules, OneAddress);
  std::vector<UniqueFd> idle;
  for (size_t i = 0; i < DnsListener::kTcpClients; ++i) idle.push_back(rig.Tcp());
  uint8_t byte;
  {
    const UniqueFd beyond = rig.Tcp();
    REQUIRE(Readable(beyond.get()));
    CHECK(::recv(beyond.get(), &byte, 1, 0) <= 0);
  }
  const uint8_t too_long[] = {0xff, 0xff, 0};
  REQUIRE(::send(idle[0].get(), too_long, sizeof(too_long), 0) == 3);
  REQUIRE(Readable(idle[0].get()));
  CHECK(::recv(idle[0].get(), &byte, 1, 0) <= 0);
  const uint8_t answer[] = {0, 12, 0, 1, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0};  // no question: nothing to say
  REQUIRE(::send(idle[1].get(), answer, sizeof(answer), 0) == sizeof(answer));
  REQUIRE(Readable(idle[1].get()));
  CHECK(::recv(idle[1].get(), &byte, 1, 0) <= 0);
  // Their places are free again.
  CHECK(rig.Ask("a.hosts.example", kDnsA, true).rcode == 0);
  CHECK(rig.Ask("a.hosts.example").rcode == 0);
}

TEST_CASE(
    "a policy that is switched while a server is asked decides, and a session that ends is not answered") {
  std::atomic<bool> go{false};
  ResolverRig rig(kRules, [&go](const DnsQuery& query, bool tcp) {
    for (int i = 0; i < kWaitMs && !go; ++i) absl::SleepFor(absl::Milliseconds(1));
    return OneAddress(query, tcp);
  });
  const auto wait_until_asked = [&rig](int count) {
    for (int i = 0; i < kWaitMs && rig.server.asked() < count; ++i) absl::SleepFor(absl::Milliseconds(1));
    REQUIRE(rig.server.asked() >= count);
  };
  const UniqueFd fd = rig.Udp();
  ResolverRig::Send(fd.get(), Ask("a.hosts.example", kDnsA), false);
  wait_until_asked(1);
  rig.policy.Switch(policy::MakeBase(""));
  go = true;
  CHECK(ResolverRig::Receive(fd.get(), "a.hosts.example", kDnsA, false).rcode == 3);
  CHECK(rig.host.opened().empty());
  rig.policy.Switch(policy::MakeBase(kRules));
  go = false;
  ResolverRig::Send(fd.get(), Ask("b.hosts.example", kDnsA), false);
  wait_until_asked(2);
  rig.resolver->RemoveSession(ResolverRig::kSession);
  go = true;
  const auto next = rig.resolver->AddSession(7, [&rig] { return rig.policy.Get(); });
  REQUIRE(next.ok());
  rig.ports = *next;
  CHECK(rig.Ask("c.hosts.example").rcode == 0);
  CHECK(rig.host.opened() == Records{"c.hosts.example=192.0.2.1"});
}

TEST_CASE("names of the hosts file and localhost are answered without a server, also with this host") {
  char name[] = "/tmp/resolver-hosts-XXXXXX";
  const UniqueFd file(::mkstemp(name));
  const std::string text = "127.0.0.1 own.hosts.example\n10.0.0.9 denied.example\n";
  REQUIRE(::write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()));
  ResolverRig rig(absl::StrCat(kRules, "  - {name: here, domains: [localhost], decision: allow}\n"),
                  OneAddress, [&name](Resolver::Options& options) { options.hosts_file = name; });
  CHECK(rig.Ask("own.hosts.example").records == Records{"127.0.0.1"});
  CHECK(rig.Ask("own.hosts.example", kDnsAaaa).rcode == 0);
  CHECK(rig.Ask("localhost", kDnsAaaa).records == Records{"::1"});
  CHECK(rig.Ask("denied.example").rcode == 3);
  CHECK(rig.server.asked() == 0);
  REQUIRE(::unlink(name) == 0);
}

TEST_CASE("malformed messages are answered with an error or not at all, and the next question is answered") {
  ResolverRig rig(kRules, OneAddress);
  const UniqueFd fd = rig.Udp();
  ResolverRig::Send(fd.get(), {1}, false);
  ResolverRig::Send(fd.get(), DnsBytes().Header(1, 0x8100, 1).Question("a.hosts.example", 1).Take(), false);
  ResolverRig::Send(fd.get(), std::vector<uint8_t>(9000, 0x55), false);
  ResolverRig::Send(fd.get(), DnsBytes().Header(7, 0x0100, 0).Take(), false);
  Got got = ResolverRig::Receive(fd.get(), "a.hosts.example", kDnsA, false);
  for (int i = 0; i < 2 && got.rcode != 1; ++i)
    got = ResolverRig::Receive(fd.get(), "a.hosts.example", kDnsA, false);
  CHECK(got.rcode == 1);
  CHECK(rig.Ask("a.hosts.example").rcode == 0);
}

TEST_CASE("servers are addresses") {
  CHECK(Upstream::CheckServers("192.0.2.1").ok());
  CHECK(Upstream::CheckServers("192.0.2.1:5353,[2001:db8::1]:53").ok());
  CHECK_FALSE(Upstream::CheckServers("dns.example").ok());
  CHECK_FALSE(Upstream::CheckServers("").ok());
}

}  // namespace agentmon
