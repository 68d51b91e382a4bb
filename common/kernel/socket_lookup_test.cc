#include "common/kernel/socket_lookup.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <unistd.h>

#include <catch2/catch.hpp>

namespace agentmon {
namespace {

sockaddr_storage NameOf(int fd) {
  sockaddr_storage name{};
  socklen_t size = sizeof(name);
  REQUIRE(::getsockname(fd, reinterpret_cast<sockaddr*>(&name), &size) == 0);
  return name;
}

uint64_t CookieOf(int fd) {
  uint64_t cookie = 0;
  socklen_t size = sizeof(cookie);
  REQUIRE(::getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &size) == 0);
  return cookie;
}

UniqueFd Bound(int family, int type) {
  UniqueFd fd(::socket(family, type | SOCK_CLOEXEC, 0));
  sockaddr_storage name{};
  name.ss_family = static_cast<sa_family_t>(family);
  if (family == AF_INET)
    reinterpret_cast<sockaddr_in&>(name).sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  else
    reinterpret_cast<sockaddr_in6&>(name).sin6_addr = in6addr_loopback;
  REQUIRE(::bind(fd.get(), reinterpret_cast<sockaddr*>(&name), sizeof(name)) == 0);
  return fd;
}

void Connect(int fd, const sockaddr_storage& to) {
  REQUIRE(::connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof(to)) == 0);
}

}  // namespace

TEST_CASE("the socket that sent a datagram is found, connected or not, in both families") {
  auto lookup = SocketLookup::Create();
  REQUIRE(lookup.ok());
  for (const int family : {AF_INET, AF_INET6}) {
    const UniqueFd server = Bound(family, SOCK_DGRAM), bound = Bound(family, SOCK_DGRAM),
                   connected = Bound(family, SOCK_DGRAM);
    Connect(connected.get(), NameOf(server.get()));
    for (const int fd : {bound.get(), connected.get()}) {
      const auto found = lookup->Find(IPPROTO_UDP, NameOf(server.get()), NameOf(fd));
      REQUIRE(found.ok());
      CHECK(found->cookie == CookieOf(fd));
      CHECK(found->uid == ::getuid());
    }
  }
}

TEST_CASE("the peer of a connection is found, also an IPv6 socket that speaks IPv4") {
  auto lookup = SocketLookup::Create();
  REQUIRE(lookup.ok());
  const UniqueFd server = Bound(AF_INET, SOCK_STREAM);
  REQUIRE(::listen(server.get(), 4) == 0);
  const sockaddr_storage at = NameOf(server.get());
  const UniqueFd four(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  Connect(four.get(), at);
  const UniqueFd six(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_storage mapped{};
  auto& name = reinterpret_cast<sockaddr_in6&>(mapped);
  name.sin6_family = AF_INET6;
  REQUIRE(::inet_pton(AF_INET6, "::ffff:127.0.0.1", &name.sin6_addr) == 1);
  name.sin6_port = reinterpret_cast<const sockaddr_in&>(at).sin_port;
  Connect(six.get(), mapped);
  for (const int fd : {four.get(), six.get()}) {
    sockaddr_storage peer{};
    socklen_t size = sizeof(peer);
    const UniqueFd accepted(::accept4(server.get(), reinterpret_cast<sockaddr*>(&peer), &size, SOCK_CLOEXEC));
    REQUIRE(accepted.valid());
    const auto found = lookup->Find(IPPROTO_TCP, at, peer);
    REQUIRE(found.ok());
    CHECK(found->cookie == CookieOf(fd));
  }
}

TEST_CASE("a socket that is gone is not found, and ends of two families are none") {
  auto lookup = SocketLookup::Create();
  REQUIRE(lookup.ok());
  const UniqueFd server = Bound(AF_INET, SOCK_DGRAM);
  sockaddr_storage gone;
  {
    const UniqueFd client = Bound(AF_INET, SOCK_DGRAM);
    gone = NameOf(client.get());
  }
  CHECK(absl::IsNotFound(lookup->Find(IPPROTO_UDP, NameOf(server.get()), gone).status()));
  CHECK(absl::IsNotFound(lookup->Find(IPPROTO_TCP, NameOf(server.get()), gone).status()));
  CHECK(absl::IsInvalidArgument(
      lookup->Find(IPPROTO_UDP, NameOf(server.get()), NameOf(Bound(AF_INET6, SOCK_DGRAM).get())).status()));
}

}  // namespace agentmon
