// SOCKS 5 as far as a proxy for TCP needs it: RFC 1928 and, for the password, RFC 1929.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace agentmon {

constexpr uint8_t kSocksVersion = 5;

enum class SocksReply : uint8_t {
  kDone = 0,
  kFailed = 1,
  kDenied = 2,
  kNetworkUnreachable = 3,
  kHostUnreachable = 4,
  kRefused = 5,
  kNoSuchCommand = 7,
  kNoSuchAddress = 8,
};

// What was read of the first bytes of a buffer.
struct SocksRead {
  enum What { kMore, kBad, kRead };
  What what = kMore;
  size_t size = 0;  // of the message
};

// Methods that the program offers; `password`: one of them is that of RFC 1929.
SocksRead ReadSocksMethods(absl::string_view bytes, bool& password);
SocksRead ReadSocksPassword(absl::string_view bytes, std::string& user, std::string& password);

struct SocksRequest {
  SocksReply refusal =
      SocksReply::kDone;  // anything else: of a command or kind of address that is not served
  std::string host;       // a name, or the text of an address
  uint16_t port = 0;
};
SocksRead ReadSocksRequest(absl::string_view bytes, SocksRequest& request);

std::string WriteSocksMethod(bool password);  // false: none of the offered ones will do
std::string WriteSocksPasswordReply(bool good);
std::string WriteSocksReply(SocksReply reply);

}  // namespace agentmon
