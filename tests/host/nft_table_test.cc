// What is told to nftables by netlink, as packets see it; in a network namespace of its own.
#include "daemon/enforce/nft_table.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <cstring>
#include <thread>

#include "absl/strings/str_cat.h"
#include "daemon/enforce/nft.h"

namespace agentmon {
namespace {

constexpr char kTable[] = "agentmon-test";
constexpr char kRules[] = R"(
add table inet agentmon-test
add counter inet agentmon-test stopped
add chain inet agentmon-test stop
add rule inet agentmon-test stop counter name "stopped" drop
add map inet agentmon-test names4 { type ipv4_addr . inet_proto . inet_service : verdict; flags interval, timeout; }
add map inet agentmon-test names6 { type ipv6_addr . inet_proto . inet_service : verdict; flags interval, timeout; }
add chain inet agentmon-test output { type filter hook output priority 0; policy accept; }
add rule inet agentmon-test output ip daddr . meta l4proto . th dport vmap @names4
add rule inet agentmon-test output ip6 daddr . meta l4proto . th dport vmap @names6
)";

// Of a datagram; 0 = sent.
int SendTo(const std::string& address, uint16_t port) {
  const bool v6 = address.find(':') != std::string::npos;
  sockaddr_storage to{};
  if (v6) {
    auto& in6 = reinterpret_cast<sockaddr_in6&>(to);
    in6.sin6_port = htons(port);
    REQUIRE(inet_pton(AF_INET6, address.c_str(), &in6.sin6_addr) == 1);
  } else {
    auto& in4 = reinterpret_cast<sockaddr_in&>(to);
    in4.sin_port = htons(port);
    REQUIRE(inet_pton(AF_INET, address.c_str(), &in4.sin_addr) == 1);
  }
  to.ss_family = v6 ? AF_INET6 : AF_INET;
  const UniqueFd fd(socket(to.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const socklen_t size = v6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  return sendto(fd.get(), "x", 1, 0, reinterpret_cast<const sockaddr*>(&to), size) < 0 ? errno : 0;
}

NftElement Element(absl::string_view address, uint16_t low, uint16_t high,
                   const std::string& chain = "stop") {
  const policy::Address parsed = *policy::ParseAddress(address);
  return {parsed.v6 ? "names6" : "names4", parsed, IPPROTO_UDP, low, high, absl::Hours(1), chain};
}

void RaiseLoopback() {
  ifreq request{};
  std::strcpy(request.ifr_name, "lo");
  request.ifr_flags = IFF_UP | IFF_RUNNING;
  const UniqueFd fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  REQUIRE(ioctl(fd.get(), SIOCSIFFLAGS, &request) == 0);
}

// On a thread, whose namespace goes with it.
template <typename Body>
void InNamespace(Body body) {
  std::thread([&] {
    REQUIRE(unshare(CLONE_NEWNET) == 0);
    RaiseLoopback();
    auto nft = Nft::Create();
    REQUIRE(nft.ok());
    REQUIRE((*nft)->Run(kRules).ok());
    auto table = NftTable::Create(kTable);
    REQUIRE(table.ok());
    body(*table);
  }).join();
}

TEST_CASE("elements count for the address, the protocol and all ports of their range") {
  InNamespace([](NftTable& table) {
    CHECK(SendTo("127.0.0.7", 2000) == 0);  // the control
    REQUIRE(table.Apply({{}, {}, {Element("127.0.0.7", 2000, 2999), Element("::1", 53, 53)}}).ok());
    CHECK(SendTo("127.0.0.7", 2000) == EPERM);
    CHECK(SendTo("127.0.0.7", 2999) == EPERM);
    CHECK(SendTo("::1", 53) == EPERM);
    CHECK(*table.PacketsOf("stopped") == 3);
    CHECK(SendTo("127.0.0.7", 1999) == 0);
    CHECK(SendTo("127.0.0.7", 3000) == 0);
    CHECK(SendTo("127.0.0.8", 2000) == 0);
    CHECK(SendTo("::1", 54) == 0);
  });
}

TEST_CASE("maps are emptied before, and a chain without rules stops nothing") {
  InNamespace([](NftTable& table) {
    REQUIRE(table.Apply({{}, {}, {Element("127.0.0.7", 1, 9)}}).ok());
    REQUIRE(table.Apply({{}, {"names4"}, {Element("127.0.0.8", 1, 9), Element("127.0.0.9", 1, 9, "")}}).ok());
    CHECK(SendTo("127.0.0.7", 5) == 0);
    CHECK(SendTo("127.0.0.8", 5) == EPERM);
    CHECK(SendTo("127.0.0.9", 5) == 0);
    REQUIRE(table.Apply({{"output"}, {}, {}}).ok());
    CHECK(SendTo("127.0.0.8", 5) == 0);
  });
}

TEST_CASE("a change of which a part is refused is none, and the next one is heard right") {
  InNamespace([](NftTable& table) {
    NftElement wrong = Element("127.0.0.8", 1, 9);
    wrong.map = "no-such-map";
    const absl::Status refused = table.Apply({{}, {}, {Element("127.0.0.7", 1, 9), wrong}});
    CHECK(absl::IsNotFound(refused));
    CHECK(SendTo("127.0.0.7", 5) == 0);
    CHECK_FALSE(table.PacketsOf("no-such-counter").ok());
    REQUIRE(table.Apply({{}, {}, {Element("127.0.0.7", 1, 9)}}).ok());
    CHECK(SendTo("127.0.0.7", 5) == EPERM);
    CHECK(*table.PacketsOf("stopped") == 1);
  });
}

TEST_CASE("two thousand elements are one change") {
  InNamespace([](NftTable& table) {
    NftChange change;
    for (int i = 0; i < 2000; ++i)
      change.added.push_back(Element(absl::StrCat("127.1.", i / 250, ".", i % 250 + 1), 7, 7));
    REQUIRE(table.Apply(change).ok());
    CHECK(SendTo("127.1.7.250", 7) == EPERM);
    CHECK(SendTo("127.1.7.250", 8) == 0);
    REQUIRE(table.Apply({{}, {"names4"}, {}}).ok());
    CHECK(SendTo("127.1.7.250", 7) == 0);
  });
}

}  // namespace
}  // namespace agentmon
