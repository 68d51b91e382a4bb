// IP addresses, prefixes and host names in one spelling each.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace agentmon::policy {

// IPv4 or IPv6. v4-mapped (::ffff:a.b.c.d), v4-compatible and NAT64 (64:ff9b::/96) addresses become IPv4.
struct Address {
  std::array<uint8_t, 16> bytes{};  // IPv4: the first four
  bool v6 = false;
  auto operator<=>(const Address&) const = default;  // NOLINT(modernize-use-nullptr): clang-tidy 14 is wrong
  int bits() const { return v6 ? 128 : 32; }
  bool Bit(int n) const { return bytes[n / 8] >> (7 - n % 8) & 1; }
};

struct Prefix {
  Address address;  // bits past length are zero
  int length = 0;
  bool Contains(const Address& a) const;
};

// Strict spellings (inet_pton's), and the loose IPv4 ones that inet_aton takes: decimal 2852039166,
// hexadecimal 0xa9fea9fe, octal 0251.0376.0251.0376, short 127.1. A zone (%eth0) is dropped.
std::optional<Address> ParseAddress(absl::string_view text);
Address FromBytes4(const uint8_t bytes[4]);
Address FromBytes16(const uint8_t bytes[16]);  // normalised as above
std::string ToString(const Address& address);
// Where a connection to this address leads on Linux: 0.0.0.0 and :: are the loopback, others themselves.
Address Reached(const Address& address);

// "10.0.0.0/8", or one address. error says what is wrong, with a suggestion where host bits are set.
std::optional<Prefix> ParsePrefix(absl::string_view text, std::string& error);
std::string ToString(const Prefix& prefix);

// "localhost" and names below it, in any case, also with a dot at the end: this host (RFC 6761).
bool IsLocalhost(absl::string_view host);

// Lower case, no trailing dot, each label in ASCII (punycode). Nullopt when it is not a host name.
std::optional<std::string> NormalizeDomain(absl::string_view name);

// One label in UTF-8 -> "xn--..."; ASCII stays, in lower case. Nullopt: not UTF-8, or too long.
std::optional<std::string> LabelToAscii(absl::string_view label);

}  // namespace agentmon::policy
