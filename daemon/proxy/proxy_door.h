// Where the programs of a session find its proxy, and what opens it to them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace agentmon {

inline constexpr char kProxyUser[] = "session";

struct ProxyDoor {
  uint16_t port = 0;  // on 127.0.0.1
  std::string token;  // the password of kProxyUser; 32 hexadecimal digits

  // "http://session:TOKEN@127.0.0.1:PORT"; the same port speaks SOCKS.
  std::string Url() const;
  // "Basic ...", of Proxy-Authorization.
  std::string Authorization() const;
};

// A fresh token.
std::string NewProxyToken();
// Of the environment of a process ("NAME=VALUE" words, each ended by NUL): the door that Url() put there.
std::optional<ProxyDoor> FindProxyDoor(absl::string_view environment);
// Takes as long for a wrong secret as for the right one.
bool SameSecret(absl::string_view a, absl::string_view b);

}  // namespace agentmon
