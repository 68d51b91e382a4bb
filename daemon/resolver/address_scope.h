// Where an address leads, and which names may lead there.
#pragma once

#include "absl/strings/string_view.h"
#include "common/policy/address.h"

namespace agentmon {

enum class AddressScope {
  kGlobal,
  kPrivate,  // of a local network: RFC 1918, shared and unique local addresses
  kHost,     // of this host or link, a metadata service, or of no host at all
};
AddressScope ScopeOf(const policy::Address& address);

// Of a local network: nobody can register it in the public tree (RFC 6762 G, 8375, 9476).
bool IsLocalName(absl::string_view name);

}  // namespace agentmon
