#include "client/policy/network_options.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/base/status.h"
#include "common/policy/patterns.h"
#include "common/policy/policy_proto.h"

namespace agentmon::policy_cli {
namespace {

// Takes ":443" off; the colons of an IPv6 address without brackets are its own.
absl::Status TakePort(absl::string_view& text, policy::Rule& rule) {
  const size_t colon = text.rfind(':');
  const bool bracketed = absl::StartsWith(text, "[");
  const bool has_port = colon != absl::string_view::npos &&
                        (bracketed ? colon > 0 && text[colon - 1] == ']' : text.find(':') == colon);
  if (has_port) {
    const std::vector<absl::string_view> ends = absl::StrSplit(text.substr(colon + 1), '-');
    uint32_t first = 0, last = 0;
    if (ends.size() > 2 || !absl::SimpleAtoi(ends.front(), &first) || !absl::SimpleAtoi(ends.back(), &last) ||
        first == 0 || last < first || last > 65535)
      return absl::InvalidArgumentError("a port is a number from 1 to 65535, or two: 8000-8010");
    rule.ports.push_back({static_cast<uint16_t>(first), static_cast<uint16_t>(last)});
    text = text.substr(0, colon);
  }
  if (bracketed && absl::EndsWith(text, "]")) text = text.substr(1, text.size() - 2);
  return absl::OkStatus();
}

// "10.1": no name ends in a number.
bool EndsInNumber(absl::string_view text) {
  const absl::string_view last = text.substr(text.rfind('.') + 1);
  return !last.empty() && std::all_of(last.begin(), last.end(), absl::ascii_isdigit);
}

// "::1:80" is an address, and looks like one with a port.
bool LooksLikePort(absl::string_view text) {
  const size_t colon = text.rfind(':');
  return absl::StrContains(text, "::") && text.size() - colon > 2 && !absl::StrContains(text, '.') &&
         EndsInNumber(text.substr(colon + 1)) && policy::ParseAddress(text.substr(0, colon)).has_value();
}

// What would be taken for a name, or for another address than was meant. Empty: nothing of that kind.
std::string WhatIsMeant(absl::string_view option, absl::string_view text) {
  if (absl::StrContains(text, ',') && !absl::StrContains(text, '{')) {
    return absl::StrCat(
        "one destination; give the option once for each: ", option, " ",
        absl::StrJoin(absl::StrSplit(text, ',', absl::SkipEmpty()), absl::StrCat(" ", option, " ")));
  }
  if (const size_t at = text.rfind('@'); at != absl::string_view::npos)
    return absl::StrCat("a user and a host; rules are about hosts: ", text.substr(at + 1));
  if (absl::StartsWith(text, "[") || absl::StrContains(text, '/')) return "";
  if (LooksLikePort(text)) {
    const size_t colon = text.rfind(':');
    return absl::StrCat("an address, or one with a port? [", text.substr(0, colon), "]", text.substr(colon),
                        " or [", text, "]");
  }
  const absl::string_view host = text.substr(0, text.find(':'));
  if (absl::StrContains(text, "::") || !EndsInNumber(host)) return "";
  if (std::count(host.begin(), host.end(), '.') != 3 || !policy::ParseAddress(host).has_value())
    return "no name ends in a number; an IPv4 address has four of them, and a network a length: 10.1.0.0/16";
  return "";
}

absl::Status AddRule(absl::string_view option, const std::string& destination, policy::Decision decision,
                     policy::Document& document) {
  policy::Rule rule;
  rule.kind = policy::RuleKind::kNetwork;
  rule.name = absl::StrCat(option, " ", destination);
  rule.decision = decision;
  absl::string_view text = destination;
  if (absl::StrContains(text, "://"))
    return absl::InvalidArgumentError(absl::StrCat(
        rule.name, ": a URL; give its host, with the port if only that one is meant: example.org:443"));
  if (const std::string meant = WhatIsMeant(option, text); !meant.empty())
    return absl::InvalidArgumentError(absl::StrCat(rule.name, ": ", meant));
  RETURN_IF_ERROR(WithContext(TakePort(text, rule), rule.name));
  if (text == "*")
    return absl::InvalidArgumentError(
        absl::StrCat(rule.name, ": '*' is a name without a dot; every destination is '**'"));
  std::string why;
  if (policy::ParsePrefix(text, why)) {
    rule.cidrs.push_back({std::string(text), {}});
  } else {
    policy::DomainPattern pattern;
    policy::GlobError error;
    if (absl::StrContains(text, '/') || !policy::ParseDomainPattern(text, pattern, error)) {
      return absl::InvalidArgumentError(
          absl::StrCat(rule.name, ": ", absl::StrContains(text, '/') ? why : error.message));
    }
    rule.domains.push_back({std::string(text), {}});
  }
  document.rules.push_back(std::move(rule));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<v1::PolicyDocument> NetworkLayer(const NetworkOptions& options) {
  policy::Document document;
  document.file = document.name = "command line";
  document.version = 1;
  document.posture = policy::Posture::kEnforce;
  for (const std::string& destination : options.deny)
    RETURN_IF_ERROR(AddRule("--deny-net", destination, policy::Decision::kDeny, document));
  for (const std::string& destination : options.allow)
    RETURN_IF_ERROR(AddRule("--allow-net", destination, policy::Decision::kAllow, document));
  if (options.deny_all || !options.allow.empty())
    RETURN_IF_ERROR(AddRule(options.deny_all ? "--deny-all" : "not in --allow-net:", "**",
                            policy::Decision::kDeny, document));
  v1::PolicyDocument out;
  policy::ToProto(document, out);
  return out;
}

}  // namespace agentmon::policy_cli
