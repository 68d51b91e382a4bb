#include "daemon/probe/destination.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <string>

#include "common/policy/rule.h"

namespace agentmon {
namespace {

using Kind = Destination::Kind;

std::string Name4(const char* address, uint16_t port, sa_family_t family = AF_INET) {
  sockaddr_in in{};
  in.sin_family = family;
  in.sin_port = htons(port);
  REQUIRE(inet_pton(AF_INET, address, &in.sin_addr) == 1);
  return std::string(reinterpret_cast<const char*>(&in), sizeof(in));
}

std::string Name6(const char* address, uint16_t port) {
  sockaddr_in6 in{};
  in.sin6_family = AF_INET6;
  in.sin6_port = htons(port);
  REQUIRE(inet_pton(AF_INET6, address, &in.sin6_addr) == 1);
  return std::string(reinterpret_cast<const char*>(&in), sizeof(in));
}

CallerSocket Socket(int domain, int type, int protocol) {
  CallerSocket socket;
  socket.domain = domain;
  socket.type = type;
  socket.protocol = protocol;
  return socket;
}

}  // namespace

TEST_CASE("an address is judged as what it leads to, in every spelling") {
  const CallerSocket v6 = Socket(AF_INET6, SOCK_STREAM, IPPROTO_TCP);
  for (const char* spelling : {"::ffff:10.0.0.1", "64:ff9b::10.0.0.1", "::10.0.0.1"}) {
    const Destination to = DestinationOf(v6, true, Name6(spelling, 80));
    CHECK(to.kind == Kind::kAddress);
    CHECK(policy::ToString(to.address) == "10.0.0.1");
    CHECK(to.port == 80);
    CHECK(to.protocol == policy::kTcp);
  }
  CHECK(DestinationOf(v6, true, Name6("::ffff:10.0.0.1", 80)).text == "10.0.0.1");
  CHECK(DestinationOf(v6, true, Name6("fd00::1", 80)).text == "fd00::1");
  // A datagram socket takes IPv4 addresses as they are.
  CHECK(DestinationOf(Socket(AF_INET6, SOCK_DGRAM, IPPROTO_UDP), false, Name4("10.0.0.1", 53)).text ==
        "10.0.0.1");
}

TEST_CASE("a name of no family is a disconnect, or the address of an IPv4 datagram") {
  const CallerSocket udp = Socket(AF_INET, SOCK_DGRAM, IPPROTO_UDP);
  const std::string name = Name4("10.0.0.1", 53, AF_UNSPEC);
  CHECK(DestinationOf(udp, true, name).kind == Kind::kNowhere);
  CHECK(DestinationOf(Socket(AF_INET6, SOCK_DGRAM, IPPROTO_UDP), false, name).kind == Kind::kNowhere);
  const Destination to = DestinationOf(udp, false, name);
  CHECK(to.kind == Kind::kAddress);
  CHECK(to.text == "10.0.0.1");
  CHECK(to.protocol == policy::kUdp);
}

TEST_CASE("what no kernel takes is refused with its error") {
  const CallerSocket tcp = Socket(AF_INET, SOCK_STREAM, IPPROTO_TCP);
  CHECK(DestinationOf(tcp, true, "").error == EINVAL);
  CHECK(DestinationOf(tcp, true, Name4("10.0.0.1", 80).substr(0, 15)).error == EINVAL);
  CHECK(DestinationOf(tcp, true, Name6("::1", 80)).error == EAFNOSUPPORT);
  CHECK(
      DestinationOf(Socket(AF_INET6, SOCK_STREAM, IPPROTO_TCP), true, Name6("::1", 80).substr(0, 23)).error ==
      EINVAL);
  std::string other = Name4("10.0.0.1", 80);
  other[0] = AF_UNIX;
  CHECK(DestinationOf(tcp, true, other).error == EAFNOSUPPORT);
}

}  // namespace agentmon
