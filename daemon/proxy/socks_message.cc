#include "daemon/proxy/socks_message.h"

#include "common/policy/address.h"

namespace agentmon {
namespace {

constexpr uint8_t kPasswordMethod = 2, kNoMethod = 0xff;
constexpr uint8_t kPasswordVersion = 1;
constexpr uint8_t kConnect = 1;
constexpr uint8_t kIpv4 = 1, kName = 3, kIpv6 = 4;

uint8_t At(absl::string_view bytes, size_t i) { return static_cast<uint8_t>(bytes[i]); }

std::string Bytes(std::initializer_list<uint8_t> bytes) { return {bytes.begin(), bytes.end()}; }

}  // namespace

SocksRead ReadSocksMethods(absl::string_view bytes, bool& password) {
  if (bytes.size() < 2) return {};
  if (At(bytes, 0) != kSocksVersion) return {SocksRead::kBad};
  const size_t size = 2 + size_t{At(bytes, 1)};
  if (bytes.size() < size) return {};
  password = bytes.substr(2, size - 2).find(static_cast<char>(kPasswordMethod)) != absl::string_view::npos;
  return {SocksRead::kRead, size};
}

SocksRead ReadSocksPassword(absl::string_view bytes, std::string& user, std::string& password) {
  if (bytes.size() < 2) return {};
  if (At(bytes, 0) != kPasswordVersion) return {SocksRead::kBad};
  const size_t user_size = At(bytes, 1);
  if (bytes.size() < 3 + user_size) return {};
  const size_t password_size = At(bytes, 2 + user_size);
  const size_t size = 3 + user_size + password_size;
  if (bytes.size() < size) return {};
  user = std::string(bytes.substr(2, user_size));
  password = std::string(bytes.substr(3 + user_size, password_size));
  return {SocksRead::kRead, size};
}

SocksRead ReadSocksRequest(absl::string_view bytes, SocksRequest& request) {
  if (bytes.size() < 5) return {};
  if (At(bytes, 0) != kSocksVersion || At(bytes, 2) != 0) return {SocksRead::kBad};
  const uint8_t kind = At(bytes, 3);
  if (kind != kIpv4 && kind != kName && kind != kIpv6) {
    request.refusal = SocksReply::kNoSuchAddress;
    return {SocksRead::kRead, bytes.size()};
  }
  const size_t begin = kind == kName ? 5 : 4;
  const size_t length = kind == kName ? At(bytes, 4) : kind == kIpv4 ? 4 : 16;
  const size_t size = begin + length + 2;
  if (bytes.size() < size) return {};
  const absl::string_view host = bytes.substr(begin, length);
  const auto* raw = reinterpret_cast<const uint8_t*>(host.data());
  request.host = kind == kName   ? std::string(host)
                 : kind == kIpv4 ? policy::ToString(policy::FromBytes4(raw))
                                 : policy::ToString(policy::FromBytes16(raw));
  request.port = static_cast<uint16_t>(At(bytes, size - 2) << 8 | At(bytes, size - 1));
  if (At(bytes, 1) != kConnect) request.refusal = SocksReply::kNoSuchCommand;
  return {SocksRead::kRead, size};
}

std::string WriteSocksMethod(bool password) {
  return Bytes({kSocksVersion, password ? kPasswordMethod : kNoMethod});
}

std::string WriteSocksPasswordReply(bool good) {
  return Bytes({kPasswordVersion, good ? uint8_t{0} : uint8_t{1}});
}

// Which address of ours is used is nobody's business: 0.0.0.0:0.
std::string WriteSocksReply(SocksReply reply) {
  return Bytes({kSocksVersion, static_cast<uint8_t>(reply), 0, kIpv4, 0, 0, 0, 0, 0, 0});
}

}  // namespace agentmon
