// Where a call on an inet socket leads.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "common/policy/address.h"
#include "daemon/event/event.h"
#include "daemon/probe/caller_socket.h"

namespace agentmon {

struct Destination {
  // kNowhere: the call leads to no new address, as a disconnect does.
  enum class Kind { kAddress, kNowhere, kInvalid } kind = Kind::kInvalid;
  int error = 0;  // kInvalid: what the kernel says of such an address
  policy::Address address;
  std::string text;  // as events have it
  uint16_t port = 0;
  uint8_t protocol = 0;  // policy::kTcp, kUdp; 0 = another one
};

// name: of a socket address, as the caller has it. What no kernel takes is kInvalid.
Destination DestinationOf(const CallerSocket& socket, bool connects, absl::string_view name);

// kind: CONNECT or SEND.
Event DescribeDestination(const CallerSocket& socket, const Destination& to, v1::EventKind kind);

}  // namespace agentmon
