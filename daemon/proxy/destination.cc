#include "daemon/proxy/destination.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace agentmon {
namespace {

constexpr size_t kLongestName = 253;
constexpr uint16_t kHttpPort = 80;
constexpr absl::string_view kScheme = "http://";

bool IsNameByte(char c) { return absl::ascii_isalnum(c) || c == '-' || c == '_' || c == '.'; }

std::optional<uint16_t> ParsePort(absl::string_view text) {
  uint32_t port = 0;
  if (text.empty() || text.size() > 5 || !std::all_of(text.begin(), text.end(), absl::ascii_isdigit) ||
      !absl::SimpleAtoi(text, &port) || port == 0 || port > UINT16_MAX)
    return std::nullopt;
  return static_cast<uint16_t>(port);
}

// `port` when the text names none; 0 = it must.
std::optional<Destination> ParseHostPort(absl::string_view text, uint16_t port) {
  absl::string_view host = text, rest;
  if (absl::StartsWith(text, "[")) {
    const size_t end = text.find(']');
    if (end == absl::string_view::npos) return std::nullopt;
    host = text.substr(1, end - 1);
    rest = text.substr(end + 1);
    if (!absl::StrContains(host, ':')) return std::nullopt;
  } else if (const size_t colon = text.find(':'); colon != absl::string_view::npos) {
    host = text.substr(0, colon);
    rest = text.substr(colon);
  }
  if (!rest.empty() && rest[0] != ':') return std::nullopt;
  if (rest.size() > 1) {
    const std::optional<uint16_t> given = ParsePort(rest.substr(1));
    if (!given.has_value()) return std::nullopt;
    port = *given;
  }
  return MakeDestination(host, port);
}

}  // namespace

std::string Destination::ToString() const {
  return absl::StrContains(host, ':') ? absl::StrCat("[", host, "]:", port) : absl::StrCat(host, ":", port);
}

std::optional<Destination> MakeDestination(absl::string_view host, uint16_t port) {
  if (host.empty() || port == 0) return std::nullopt;
  Destination out;
  out.port = port;
  out.address = policy::ParseAddress(host);
  if (out.address.has_value()) {
    out.host = policy::ToString(*out.address);
    return out;
  }
  if (host.back() == '.') host.remove_suffix(1);
  if (host.empty() || host.size() > kLongestName) return std::nullopt;
  // Names in other scripts come as they are, or in the form of DNS; nothing else that a name cannot have.
  const bool ascii = std::all_of(host.begin(), host.end(), absl::ascii_isascii);
  out.is_host_name = std::all_of(host.begin(), host.end(), IsNameByte);
  if (ascii && !out.is_host_name) return std::nullopt;
  const std::optional<std::string> name = policy::NormalizeDomain(host);
  if (!name.has_value()) return std::nullopt;
  out.host = *name;
  out.is_host_name = std::all_of(name->begin(), name->end(), IsNameByte);
  return out;
}

std::optional<Destination> ParseAuthority(absl::string_view text) { return ParseHostPort(text, 0); }

std::optional<HttpTarget> ParseHttpTarget(absl::string_view text) {
  if (!absl::StartsWithIgnoreCase(text, kScheme)) return std::nullopt;
  text.remove_prefix(kScheme.size());
  if (const size_t fragment = text.find('#'); fragment != absl::string_view::npos)
    text = text.substr(0, fragment);
  const size_t end = std::min(text.find_first_of("/?"), text.size());
  absl::string_view authority = text.substr(0, end), rest = text.substr(end);
  // The last one ends the user: programs do not agree on what is before it, and nobody is told of it.
  if (absl::StrContains(authority, '\\')) return std::nullopt;  // for some it ends the host
  if (const size_t at = authority.rfind('@'); at != absl::string_view::npos) authority.remove_prefix(at + 1);
  std::optional<Destination> destination = ParseHostPort(authority, kHttpPort);
  if (!destination.has_value()) return std::nullopt;
  HttpTarget out;
  out.destination = *std::move(destination);
  const size_t query = std::min(rest.find('?'), rest.size());
  out.path = std::string(rest.substr(0, query));
  out.query = std::string(rest.substr(query));
  return out;
}

}  // namespace agentmon
