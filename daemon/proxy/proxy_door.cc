#include "daemon/proxy/proxy_door.h"

#include <algorithm>
#include <cstdlib>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/random.h"

namespace agentmon {
namespace {

constexpr size_t kTokenBytes = 16;

}  // namespace

std::string ProxyDoor::Url() const {
  return absl::StrCat("http://", kProxyUser, ":", token, "@127.0.0.1:", port);
}

std::string ProxyDoor::Authorization() const {
  return absl::StrCat("Basic ", absl::Base64Escape(absl::StrCat(kProxyUser, ":", token)));
}

std::string NewProxyToken() { return absl::BytesToHexString(RandomBytes(kTokenBytes)); }

std::optional<ProxyDoor> FindProxyDoor(absl::string_view environment) {
  for (absl::string_view word : absl::StrSplit(environment, '\0')) {
    if (!absl::ConsumePrefix(&word, "HTTP_PROXY=http://") || !absl::ConsumePrefix(&word, kProxyUser) ||
        !absl::ConsumePrefix(&word, ":"))
      continue;
    ProxyDoor door;
    door.token = std::string(word.substr(0, 2 * kTokenBytes));
    word.remove_prefix(door.token.size());
    uint32_t port = 0;
    const bool sound = door.token.size() == 2 * kTokenBytes &&
                       std::all_of(door.token.begin(), door.token.end(), absl::ascii_isxdigit) &&
                       absl::ConsumePrefix(&word, "@127.0.0.1:") && absl::SimpleAtoi(word, &port) &&
                       port > 0 && port <= UINT16_MAX;
    if (!sound) continue;
    door.port = static_cast<uint16_t>(port);
    return door;
  }
  return std::nullopt;
}

bool SameSecret(absl::string_view a, absl::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned char differ = 0;
  for (size_t i = 0; i < a.size(); ++i) differ |= static_cast<unsigned char>(a[i] ^ b[i]);
  return differ == 0;
}

}  // namespace agentmon
