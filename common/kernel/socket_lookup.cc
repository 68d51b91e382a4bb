#include "common/kernel/socket_lookup.h"

#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>

#include <cerrno>
#include <cstring>

#include "common/base/status.h"
#include "common/kernel/sock_diag.h"

namespace agentmon {
namespace {

constexpr int kMostMessages = 8;  // late answers to questions that were given up

struct End {
  uint8_t address[16] = {};
  uint16_t port = 0;  // network order
};

bool Read(const sockaddr_storage& from, sa_family_t family, End& end) {
  if (from.ss_family != family) return false;
  if (family == AF_INET) {
    const auto& four = reinterpret_cast<const sockaddr_in&>(from);
    std::memcpy(end.address, &four.sin_addr, sizeof(four.sin_addr));
    end.port = four.sin_port;
  } else {
    const auto& six = reinterpret_cast<const sockaddr_in6&>(from);
    std::memcpy(end.address, &six.sin6_addr, sizeof(six.sin6_addr));
    end.port = six.sin6_port;
  }
  return true;
}

}  // namespace

absl::StatusOr<SocketLookup> SocketLookup::Create() {
  ASSIGN_OR_RETURN(UniqueFd fd, OpenSockDiag());
  return SocketLookup(std::move(fd));
}

absl::StatusOr<SocketLookup::Found> SocketLookup::Find(int protocol, const sockaddr_storage& local,
                                                       const sockaddr_storage& remote) {
  const sa_family_t family = local.ss_family;
  End here, there;
  if ((family != AF_INET && family != AF_INET6) || !Read(local, family, here) || !Read(remote, family, there))
    return absl::InvalidArgumentError("two ends of one IP family");
  struct {
    nlmsghdr header;
    inet_diag_req_v2 body;
  } request{};
  request.header.nlmsg_len = sizeof(request);
  request.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  request.header.nlmsg_flags = NLM_F_REQUEST;
  request.header.nlmsg_seq = ++sequence_;
  request.body.sdiag_family = static_cast<uint8_t>(family);
  request.body.sdiag_protocol = static_cast<uint8_t>(protocol);
  request.body.idiag_states = UINT32_MAX;
  // For TCP source is the socket's own end. For UDP it is where the datagram comes from: udp_diag.c has
  // source and destination the other way round "for historical reasons".
  const End& source = protocol == IPPROTO_UDP ? here : there;
  const End& destination = protocol == IPPROTO_UDP ? there : here;
  std::memcpy(request.body.id.idiag_src, source.address, sizeof(source.address));
  std::memcpy(request.body.id.idiag_dst, destination.address, sizeof(destination.address));
  request.body.id.idiag_sport = source.port;
  request.body.id.idiag_dport = destination.port;
  request.body.id.idiag_cookie[0] = INET_DIAG_NOCOOKIE;
  request.body.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
  if (::send(fd_.get(), &request, sizeof(request), 0) != static_cast<ssize_t>(sizeof(request)))
    return ErrnoStatus(errno, "ask sock_diag");
  alignas(nlmsghdr) char buffer[4096];
  for (int i = 0; i < kMostMessages; ++i) {
    const ssize_t n = ::recv(fd_.get(), buffer, sizeof(buffer), 0);
    if (n < 0) return ErrnoStatus(errno, "read sock_diag");
    const auto* header = reinterpret_cast<const nlmsghdr*>(buffer);
    if (!NLMSG_OK(header, static_cast<size_t>(n)) || header->nlmsg_seq != sequence_) continue;
    if (header->nlmsg_type == NLMSG_ERROR) {
      const int error = -static_cast<const nlmsgerr*>(NLMSG_DATA(header))->error;
      return error == ENOENT ? absl::NotFoundError("no such socket") : ErrnoStatus(error, "sock_diag");
    }
    if (header->nlmsg_len < NLMSG_LENGTH(sizeof(inet_diag_msg))) break;
    const auto* found = static_cast<const inet_diag_msg*>(NLMSG_DATA(header));
    return Found{static_cast<uint64_t>(found->id.idiag_cookie[1]) << 32 | found->id.idiag_cookie[0],
                 found->idiag_uid, found->idiag_inode};
  }
  return absl::UnavailableError("sock_diag gives no sound answer");
}

}  // namespace agentmon
