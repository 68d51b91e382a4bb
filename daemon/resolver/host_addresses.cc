#include "daemon/resolver/host_addresses.h"

#include <ifaddrs.h>
#include <netinet/in.h>

#include <cerrno>
#include <cstring>

#include "common/base/log.h"

namespace agentmon {
namespace {

constexpr int64_t kFresh_ns = 1'000'000'000;

void Read(std::set<policy::Address>& addresses) {
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return LogWarning("the addresses of this host: ", std::strerror(errno));
  addresses.clear();
  for (const ifaddrs* entry = first; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr) continue;
    if (entry->ifa_addr->sa_family == AF_INET) {
      const auto* in = reinterpret_cast<const sockaddr_in*>(entry->ifa_addr);
      addresses.insert(policy::FromBytes4(reinterpret_cast<const uint8_t*>(&in->sin_addr)));
    } else if (entry->ifa_addr->sa_family == AF_INET6) {
      const auto* in6 = reinterpret_cast<const sockaddr_in6*>(entry->ifa_addr);
      addresses.insert(policy::FromBytes16(in6->sin6_addr.s6_addr));
    }
  }
  freeifaddrs(first);
}

}  // namespace

bool HostAddresses::Has(const policy::Address& address) {
  const int64_t now = clock_.BootNs();
  if (read_ns_ == 0 || now - read_ns_ > kFresh_ns) {
    Read(addresses_);
    read_ns_ = now;
  }
  return addresses_.count(address) != 0;
}

}  // namespace agentmon
