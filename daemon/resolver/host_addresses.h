// The addresses that lead to this host, whatever network they are of.
#pragma once

#include <cstdint>
#include <set>

#include "common/base/clock.h"
#include "common/policy/address.h"

namespace agentmon {

// One thread. Asks the kernel (getifaddrs(3)) at most once a second.
class HostAddresses {
 public:
  explicit HostAddresses(const Clock& clock) : clock_(clock) {}
  bool Has(const policy::Address& address);

 private:
  const Clock& clock_;
  std::set<policy::Address> addresses_;
  int64_t read_ns_ = 0;  // 0 = never
};

}  // namespace agentmon
