#include "daemon/probe/destination.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/policy/rule.h"

namespace agentmon {
namespace {

constexpr size_t kShortIn6 = offsetof(sockaddr_in6, sin6_scope_id);  // SIN6_LEN_RFC2133 of the kernel

Destination Invalid(int error) {
  Destination out;
  out.error = error;
  return out;
}

void Take4(const uint8_t bytes[4], Destination& out) {
  char text[INET6_ADDRSTRLEN] = "";
  inet_ntop(AF_INET, bytes, text, sizeof(text));
  out.text = text;
  out.address = policy::FromBytes4(bytes);
}

void Take6(const in6_addr& in, Destination& out) {
  if (IN6_IS_ADDR_V4MAPPED(&in)) return Take4(in.s6_addr + 12, out);
  char text[INET6_ADDRSTRLEN] = "";
  inet_ntop(AF_INET6, &in, text, sizeof(text));
  out.text = text;
  out.address = policy::FromBytes16(in.s6_addr);
}

}  // namespace

Destination DestinationOf(const CallerSocket& socket, bool connects, absl::string_view name) {
  sa_family_t family = 0;
  if (name.size() < sizeof(family)) return Invalid(EINVAL);
  std::memcpy(&family, name.data(), sizeof(family));
  Destination out;
  out.protocol = socket.protocol == IPPROTO_TCP   ? policy::kTcp
                 : socket.protocol == IPPROTO_UDP ? policy::kUdp
                                                  : 0;
  if (family == AF_UNSPEC) {
    // A datagram on an IPv4 socket goes to the address all the same.
    if (connects || socket.domain == AF_INET6) {
      out.kind = Destination::Kind::kNowhere;
      return out;
    }
    family = AF_INET;
  }
  out.kind = Destination::Kind::kAddress;
  if (family == AF_INET) {
    sockaddr_in in;
    if (name.size() < sizeof(in)) return Invalid(EINVAL);
    std::memcpy(&in, name.data(), sizeof(in));
    out.port = ntohs(in.sin_port);
    Take4(reinterpret_cast<const uint8_t*>(&in.sin_addr), out);
    return out;
  }
  if (family != AF_INET6 || socket.domain != AF_INET6) return Invalid(EAFNOSUPPORT);
  sockaddr_in6 in{};
  if (name.size() < kShortIn6) return Invalid(EINVAL);
  std::memcpy(&in, name.data(), std::min(name.size(), sizeof(in)));
  out.port = ntohs(in.sin6_port);
  Take6(in.sin6_addr, out);
  return out;
}

Event DescribeDestination(const CallerSocket& socket, const Destination& to, v1::EventKind kind) {
  Event event;
  event.set_kind(kind);
  v1::Net* net = event.mutable_net();
  net->set_protocol(to.protocol == policy::kTcp   ? "tcp"
                    : to.protocol == policy::kUdp ? "udp"
                                                  : absl::StrCat(socket.protocol));
  net->set_address(to.text);
  net->set_port(to.port);
  return event;
}

}  // namespace agentmon
