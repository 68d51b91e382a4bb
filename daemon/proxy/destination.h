// Where a request wants to go, in one spelling.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "common/policy/address.h"

namespace agentmon {

struct Destination {
  std::string host;                        // lower case: a name, or an address as policies write it
  std::optional<policy::Address> address;  // when it is one
  uint16_t port = 0;
  bool is_host_name = false;  // letters, digits, hyphens, underscores and dots

  std::string ToString() const;  // "host:port", "[::1]:port"
};

// Any spelling of an address that the resolver of libc takes is one. Nullopt: no name and no address, or
// port 0.
std::optional<Destination> MakeDestination(absl::string_view host, uint16_t port);
// The target of CONNECT: "host:port", "[::1]:port".
std::optional<Destination> ParseAuthority(absl::string_view text);

struct HttpTarget {
  Destination destination;
  std::string path;   // without query
  std::string query;  // with its '?'; may be empty
};
// "http://[user@]host[:port][/path][?query]"; the user is left out. Nullopt: anything else.
std::optional<HttpTarget> ParseHttpTarget(absl::string_view text);

}  // namespace agentmon
