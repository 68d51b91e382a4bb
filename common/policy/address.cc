#include "common/policy/address.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace agentmon::policy {
namespace {

// One part of a loose IPv4 spelling: decimal, 0x hexadecimal or 0 octal.
std::optional<uint64_t> LooseNumber(absl::string_view part) {
  int base = 10;
  if (absl::StartsWithIgnoreCase(part, "0x")) {
    base = 16;
    part.remove_prefix(2);
  } else if (part.size() > 1 && part[0] == '0') {
    base = 8;
    part.remove_prefix(1);
  }
  if (part.empty() || part.size() > 16) return std::nullopt;
  uint64_t value = 0;
  for (const char c : part) {
    const int digit = absl::ascii_isdigit(c) ? c - '0' : absl::ascii_isxdigit(c) ? (c | 0x20) - 'a' + 10 : 99;
    if (digit >= base) return std::nullopt;
    value = value * base + digit;
    if (value > UINT32_MAX) return std::nullopt;
  }
  return value;
}

std::optional<Address> LooseV4(absl::string_view text) {
  const std::vector<absl::string_view> parts = absl::StrSplit(text, '.');
  if (parts.size() > 4) return std::nullopt;
  uint64_t value = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::optional<uint64_t> part = LooseNumber(parts[i]);
    if (!part) return std::nullopt;
    const bool last = i + 1 == parts.size();
    const uint64_t most = last ? UINT32_MAX >> (8 * i) : 255;
    if (*part > most) return std::nullopt;
    value |= last ? *part : *part << (8 * (3 - i));
  }
  const uint8_t bytes[4] = {static_cast<uint8_t>(value >> 24), static_cast<uint8_t>(value >> 16),
                            static_cast<uint8_t>(value >> 8), static_cast<uint8_t>(value)};
  return FromBytes4(bytes);
}

// Decodes UTF-8 strictly (no surrogates, no overlong forms).
bool DecodeUtf8(absl::string_view text, std::vector<uint32_t>& out) {
  for (size_t i = 0; i < text.size();) {
    const uint8_t first = text[i];
    const size_t n = first < 0x80 ? 1 : first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
    if ((first >= 0x80 && first < 0xc2) || first > 0xf4 || i + n > text.size()) return false;
    uint32_t code = n == 1 ? first : first & (0x7f >> n);
    for (size_t k = 1; k < n; ++k) {
      const uint8_t next = text[i + k];
      if ((next & 0xc0) != 0x80) return false;
      code = code << 6 | (next & 0x3f);
    }
    constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
    if (code < kLeast[n] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return false;
    out.push_back(code);
    i += n;
  }
  return true;
}

// Case folding for what host names are written in: Latin, Greek, Cyrillic, Armenian. Others have no case.
uint32_t Lower(uint32_t c) {
  if ((c >= 0xc0 && c <= 0xde && c != 0xd7) || (c >= 0x391 && c <= 0x3a9) || (c >= 0x410 && c <= 0x42f))
    return c + 32;
  if (c >= 0x400 && c <= 0x40f) return c + 80;
  if (c >= 0x531 && c <= 0x556) return c + 48;
  if (c == 0x178) return 0xff;
  const bool even_upper =
      (c >= 0x100 && c <= 0x137) || (c >= 0x14a && c <= 0x177) || (c >= 0x460 && c <= 0x52f);
  if (even_upper && c != 0x130 && c % 2 == 0) return c + 1;
  if (((c >= 0x139 && c <= 0x148) || (c >= 0x179 && c <= 0x17e)) && c % 2 == 1) return c + 1;
  return c < 0x80 ? static_cast<uint8_t>(absl::ascii_tolower(static_cast<char>(c))) : c;
}

// RFC 3492, section 6.1 and 6.3.
constexpr uint32_t kBase = 36, kTMin = 1, kTMax = 26, kSkew = 38, kDamp = 700, kInitialBias = 72,
                   kInitialN = 128;

uint32_t Adapt(uint32_t delta, uint32_t points, bool first) {
  delta = first ? delta / kDamp : delta / 2;
  delta += delta / points;
  uint32_t k = 0;
  for (; delta > (kBase - kTMin) * kTMax / 2; k += kBase) delta /= kBase - kTMin;
  return k + (kBase - kTMin + 1) * delta / (delta + kSkew);
}

std::string Punycode(const std::vector<uint32_t>& codes) {
  std::string out;
  for (const uint32_t c : codes) {
    if (c < 0x80) out.push_back(static_cast<char>(c));
  }
  const size_t basic = out.size();
  if (basic > 0) out.push_back('-');
  uint32_t n = kInitialN, delta = 0, bias = kInitialBias;
  for (size_t done = basic; done < codes.size(); ++delta, ++n) {
    uint32_t next = UINT32_MAX;
    for (const uint32_t c : codes) {
      if (c >= n) next = std::min(next, c);
    }
    delta += (next - n) * static_cast<uint32_t>(done + 1);
    n = next;
    for (const uint32_t c : codes) {
      if (c < n) ++delta;
      if (c != n) continue;
      uint32_t q = delta;
      for (uint32_t k = kBase;; k += kBase) {
        const uint32_t t = k <= bias ? kTMin : k >= bias + kTMax ? kTMax : k - bias;
        if (q < t) break;
        const uint32_t digit = t + (q - t) % (kBase - t);
        out.push_back(static_cast<char>(digit < 26 ? 'a' + digit : '0' + digit - 26));
        q = (q - t) / (kBase - t);
      }
      out.push_back(static_cast<char>(q < 26 ? 'a' + q : '0' + q - 26));
      bias = Adapt(delta, static_cast<uint32_t>(done + 1), done == basic);
      delta = 0;
      ++done;
    }
  }
  return out;
}

}  // namespace

bool Prefix::Contains(const Address& a) const {
  if (a.v6 != address.v6) return false;
  const int whole = length / 8;
  if (std::memcmp(a.bytes.data(), address.bytes.data(), whole) != 0) return false;
  if (length % 8 == 0) return true;
  const uint8_t mask = static_cast<uint8_t>(0xff << (8 - length % 8));
  return (a.bytes[whole] & mask) == address.bytes[whole];
}

Address Reached(const Address& address) {
  if (address.bytes != Address().bytes) return address;
  Address loopback = address;
  if (address.v6) {
    loopback.bytes[15] = 1;
  } else {
    loopback.bytes[0] = 127;
    loopback.bytes[3] = 1;
  }
  return loopback;
}

Address FromBytes4(const uint8_t bytes[4]) {
  Address out;
  std::copy(bytes, bytes + 4, out.bytes.begin());
  return out;
}

Address FromBytes16(const uint8_t bytes[16]) {
  static constexpr uint8_t kMapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  static constexpr uint8_t kNat64[12] = {0, 0x64, 0xff, 0x9b};
  static constexpr uint8_t kZero[12] = {};
  const bool embeds = std::memcmp(bytes, kMapped, 12) == 0 || std::memcmp(bytes, kNat64, 12) == 0 ||
                      (std::memcmp(bytes, kZero, 12) == 0 && (bytes[12] != 0));
  if (embeds) return FromBytes4(bytes + 12);
  Address out;
  out.v6 = true;
  std::copy(bytes, bytes + 16, out.bytes.begin());
  return out;
}

std::optional<Address> ParseAddress(absl::string_view text) {
  if (absl::StartsWith(text, "[") && absl::EndsWith(text, "]")) text = text.substr(1, text.size() - 2);
  if (text.empty() || text.size() > 64) return std::nullopt;
  if (!absl::StrContains(text, ':')) return LooseV4(text);
  uint8_t bytes[16];
  if (inet_pton(AF_INET6, std::string(text.substr(0, text.find('%'))).c_str(), bytes) != 1)
    return std::nullopt;
  return FromBytes16(bytes);
}

std::string ToString(const Address& address) {
  char buffer[INET6_ADDRSTRLEN];
  return inet_ntop(address.v6 ? AF_INET6 : AF_INET, address.bytes.data(), buffer, sizeof buffer);
}

std::optional<Prefix> ParsePrefix(absl::string_view text, std::string& error) {
  const size_t slash = text.find('/');
  const absl::string_view host = text.substr(0, slash);
  const std::optional<Address> address = ParseAddress(host);
  if (!address) {
    error = "not an IP address or prefix";
    return std::nullopt;
  }
  const bool written_v6 = absl::StrContains(host, ':');
  const int shift = written_v6 && !address->v6 ? 96 : 0;  // ::ffff:10.0.0.0/104 is 10.0.0.0/8
  Prefix out{*address, address->bits()};
  if (slash != absl::string_view::npos) {
    int length;
    if (!absl::SimpleAtoi(text.substr(slash + 1), &length) || length - shift < 0 ||
        length - shift > address->bits()) {
      error = absl::StrCat("the prefix length must be ", shift, " to ", shift + address->bits());
      return std::nullopt;
    }
    out.length = length - shift;
  }
  for (int bit = out.length; bit < address->bits(); ++bit) {
    out.address.bytes[bit / 8] &= static_cast<uint8_t>(~(1u << (7 - bit % 8)));
  }
  if (out.address != *address) {
    error = absl::StrCat("bits after the prefix are set; write ", ToString(out), " or ", ToString(*address));
    return std::nullopt;
  }
  return out;
}

std::string ToString(const Prefix& prefix) {
  return absl::StrCat(ToString(prefix.address), "/", prefix.length);
}

std::optional<std::string> LabelToAscii(absl::string_view label) {
  std::vector<uint32_t> codes;
  if (label.size() > 255 || !DecodeUtf8(label, codes)) return std::nullopt;
  for (uint32_t& c : codes) c = Lower(c);
  const bool ascii = std::all_of(codes.begin(), codes.end(), [](uint32_t c) { return c < 0x80; });
  std::string out = ascii ? absl::AsciiStrToLower(label) : absl::StrCat("xn--", Punycode(codes));
  if (out.size() > 63) return std::nullopt;
  return out;
}

bool IsLocalhost(absl::string_view host) {
  absl::ConsumeSuffix(&host, ".");
  return absl::EqualsIgnoreCase(host, "localhost") || absl::EndsWithIgnoreCase(host, ".localhost");
}

std::optional<std::string> NormalizeDomain(absl::string_view name) {
  std::string dots;  // ideographic full stops separate labels too
  if (absl::StrContains(name, "\xe3\x80\x82")) {
    dots = absl::StrJoin(absl::StrSplit(name, "\xe3\x80\x82"), ".");
    name = dots;
  }
  if (absl::EndsWith(name, ".")) name.remove_suffix(1);
  if (name.empty()) return std::nullopt;
  std::string out;
  for (const absl::string_view label : absl::StrSplit(name, '.')) {
    const std::optional<std::string> ascii = LabelToAscii(label);
    if (!ascii || ascii->empty()) return std::nullopt;
    absl::StrAppend(&out, out.empty() ? "" : ".", *ascii);
  }
  if (out.size() > 253) return std::nullopt;
  return out;
}

}  // namespace agentmon::policy
