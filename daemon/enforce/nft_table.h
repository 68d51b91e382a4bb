// What changes often in our table of nftables, straight by netlink: libnftables reads all of the table before
// each change of an element, which takes 50 ms and more where 1,000 sessions have their maps in it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/unique_fd.h"
#include "common/policy/address.h"

namespace agentmon {

// Of a map { ADDRESS . inet_proto . inet_service : verdict; flags interval, timeout; } of the family inet.
struct NftElement {
  std::string map;
  policy::Address address;
  uint8_t protocol = 0;
  uint16_t low = 0, high = 0;  // ports
  absl::Duration timeout;
  std::string chain;  // to go to; empty: return
};

struct NftChange {
  std::vector<std::string> flushed_chains, flushed_maps;
  std::vector<NftElement> added;  // afterwards
  bool empty() const { return flushed_chains.empty() && flushed_maps.empty() && added.empty(); }
};

// One thread at a time. Calls wait for the kernel's own work and for nobody else.
class NftTable {
 public:
  static absl::StatusOr<NftTable> Create(std::string name);

  // All of it or nothing.
  absl::Status Apply(const NftChange& change);
  // How many packets a counter with a name has counted.
  absl::StatusOr<uint64_t> PacketsOf(absl::string_view counter);

 private:
  NftTable(std::string name, UniqueFd socket) : name_(std::move(name)), socket_(std::move(socket)) {}

  std::string name_;
  UniqueFd socket_;
};

}  // namespace agentmon
