#include "daemon/event/filter.h"

#include <arpa/inet.h>

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/status.h"

namespace agentmon {
namespace {

// 4 or 16 bytes; v4-mapped IPv6 becomes IPv4, as events show it. Empty when it is no address.
std::string PackAddress(absl::string_view text) {
  const std::string terminated(text);
  char packed[16];
  if (inet_pton(AF_INET, terminated.c_str(), packed) == 1) return std::string(packed, 4);
  if (inet_pton(AF_INET6, terminated.c_str(), packed) != 1) return "";
  static constexpr char kMapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, '\xff', '\xff'};
  if (std::equal(kMapped, kMapped + 12, packed)) return std::string(packed + 12, 4);
  return std::string(packed, 16);
}

bool SamePrefix(absl::string_view a, absl::string_view b, int bits) {
  if (a.size() != b.size()) return false;
  const size_t whole = bits / 8;
  if (a.substr(0, whole) != b.substr(0, whole)) return false;
  if (bits % 8 == 0) return true;
  const int mask = 0xff00 >> (bits % 8) & 0xff;
  return ((a[whole] ^ b[whole]) & mask) == 0;
}

bool IsHostName(absl::string_view text) {
  const auto fits = [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.';
  };
  const auto letter = [](char c) { return absl::ascii_isalpha(static_cast<unsigned char>(c)); };
  return std::all_of(text.begin(), text.end(), fits) && std::any_of(text.begin(), text.end(), letter);
}

}  // namespace

absl::StatusOr<DestMatcher> DestMatcher::Parse(absl::string_view dest) {
  DestMatcher matcher;
  if (dest.empty()) return absl::InvalidArgumentError("empty destination");
  if (dest[0] == '/' || dest[0] == '@' || (dest[0] == '*' && dest.substr(0, 2) != "*:")) {
    ASSIGN_OR_RETURN(matcher.unix_path_, Glob::Compile(dest));
    return matcher;
  }
  absl::string_view address = dest, port;
  const size_t colon = dest.rfind(':');
  if (dest[0] == '[') {
    const size_t close = dest.find(']');
    if (close == absl::string_view::npos) return absl::InvalidArgumentError("'[' without ']'");
    address = dest.substr(1, close - 1);
    port = dest.substr(close + 1);
    if (!port.empty() && port[0] != ':') return absl::InvalidArgumentError("want [ADDRESS]:PORT");
    if (!port.empty()) port.remove_prefix(1);
  } else if (colon != absl::string_view::npos && dest.find(':') == colon) {
    address = dest.substr(0, colon);
    port = dest.substr(colon + 1);
    if (port.empty()) return absl::InvalidArgumentError("port is missing");
  }
  if (!address.empty() && address != "*") RETURN_IF_ERROR(matcher.ParseAddress(address));
  if (!port.empty()) RETURN_IF_ERROR(matcher.ParsePort(port));
  return matcher;
}

absl::Status DestMatcher::ParseAddress(absl::string_view text) {
  const size_t slash = text.find('/');
  address_ = PackAddress(text.substr(0, slash));
  if (address_.empty() && IsHostName(text)) {
    name_ = absl::AsciiStrToLower(absl::StripSuffix(text, "."));
    return absl::OkStatus();
  }
  if (address_.empty())
    return absl::InvalidArgumentError(
        absl::StrCat("'", text, "' is no address, CIDR, name, unix path or @name"));
  prefix_bits_ = static_cast<int>(address_.size() * 8);
  if (slash == absl::string_view::npos) return absl::OkStatus();
  const int most = prefix_bits_;
  if (!absl::SimpleAtoi(text.substr(slash + 1), &prefix_bits_) || prefix_bits_ < 0 || prefix_bits_ > most) {
    return absl::InvalidArgumentError(absl::StrCat("'", text, "': prefix length is 0 to ", most));
  }
  return absl::OkStatus();
}

absl::Status DestMatcher::ParsePort(absl::string_view text) {
  uint32_t port = 0;
  if (!absl::SimpleAtoi(text, &port) || port > 65535) {
    return absl::InvalidArgumentError(absl::StrCat("'", text, "' is no port"));
  }
  port_ = port;
  return absl::OkStatus();
}

bool DestMatcher::Matches(const Event& event) const {
  if (unix_path_) return event.has_unix() && unix_path_->Matches(event.unix().path());
  if (event.has_dns()) return !name_.empty() && !port_ && event.dns().name() == name_;
  if (event.has_http()) {
    const v1::Http& http = event.http();
    if (port_ && http.port() != *port_) return false;
    if (!name_.empty()) return http.host() == name_;
    return address_.empty() || SamePrefix(PackAddress(http.host()), address_, prefix_bits_);
  }
  if (!event.has_net()) return false;
  if (!name_.empty() && event.net().name() != name_) return false;
  if (port_ && event.net().port() != *port_) return false;
  return address_.empty() || SamePrefix(PackAddress(event.net().address()), address_, prefix_bits_);
}

absl::StatusOr<EventMatcher> EventMatcher::Create(const v1::EventFilter& filter) {
  EventMatcher matcher;
  if (filter.session() != "*") matcher.session_ = filter.session();
  matcher.since_ns_ = filter.since_ns();
  matcher.until_ns_ = filter.until_ns();
  for (const int kind : filter.kinds()) {
    if (kind < 0 || kind >= 64) return absl::InvalidArgumentError(absl::StrCat("no event kind ", kind));
    matcher.kinds_.set(kind);
  }
  matcher.decision_ = filter.decision();
  matcher.enforced_ = filter.enforced();
  matcher.pid_ = filter.pid();
  matcher.after_seq_ = filter.after_seq();
  if (!filter.path_glob().empty()) {
    absl::StatusOr<Glob> glob = Glob::Compile(filter.path_glob());
    if (!glob.ok()) return WithContext(glob.status(), "path");
    matcher.path_ = *std::move(glob);
  }
  if (!filter.exe_glob().empty()) {
    absl::StatusOr<Glob> glob = Glob::Compile(filter.exe_glob());
    if (!glob.ok()) return WithContext(glob.status(), "exe");
    matcher.exe_ = *std::move(glob);
  }
  if (!filter.dest().empty()) {
    absl::StatusOr<DestMatcher> dest = DestMatcher::Parse(filter.dest());
    if (!dest.ok()) return WithContext(dest.status(), "dest");
    matcher.dest_ = *std::move(dest);
  }
  return matcher;
}

bool EventMatcher::MatchesColumns(v1::EventKind kind, int32_t pid, v1::Decision decision,
                                  bool enforced) const {
  if (kinds_.any() && (kind < 0 || kind >= 64 || !kinds_[kind])) return false;
  if (pid_ != 0 && pid != pid_) return false;
  if (decision_ != v1::DECISION_UNSPECIFIED && decision != decision_) return false;
  if (enforced_ == v1::EventFilter::ANY) return true;
  return decision != v1::DECISION_UNSPECIFIED && enforced == (enforced_ == v1::EventFilter::YES);
}

bool EventMatcher::MatchesTime(int64_t wall_ns) const {
  return wall_ns >= since_ns_ && (until_ns_ == 0 || wall_ns < until_ns_);
}

bool EventMatcher::MatchesDetail(const Event& event) const {
  if (dest_ && !dest_->Matches(event)) return false;
  if (!path_) return true;
  if (!event.has_file()) return false;
  return path_->Matches(event.file().path()) ||
         (!event.file().new_path().empty() && path_->Matches(event.file().new_path()));
}

bool EventMatcher::Matches(const Event& event) const {
  if (!session_.empty() && event.session() != session_) return false;
  if (after_seq_ != 0 && event.seq() != 0 && event.seq() <= after_seq_) return false;
  return MatchesTime(event.wall_ns()) &&
         MatchesColumns(event.kind(), event.process().pid(), event.judgement().decision(),
                        event.judgement().enforced()) &&
         MatchesExe(event.exe()) && MatchesDetail(event);
}

}  // namespace agentmon
