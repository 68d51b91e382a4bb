#include "daemon/resolver/address_scope.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace agentmon {
namespace {

std::vector<policy::Prefix> Parse(std::initializer_list<const char*> texts) {
  std::vector<policy::Prefix> prefixes;
  std::string error;
  for (const char* text : texts) prefixes.push_back(*policy::ParsePrefix(text, error));
  return prefixes;
}

bool In(const std::vector<policy::Prefix>& prefixes, const policy::Address& address) {
  return std::any_of(prefixes.begin(), prefixes.end(),
                     [&address](const policy::Prefix& prefix) { return prefix.Contains(address); });
}

}  // namespace

AddressScope ScopeOf(const policy::Address& address) {
  // The metadata services of clouds that lie in private or shared space stand here too.
  static const auto& host = *new std::vector<policy::Prefix>(
      Parse({"0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "192.0.0.0/24", "224.0.0.0/4", "240.0.0.0/4",
             "100.100.100.200", "168.63.129.16", "::/127", "fe80::/10", "ff00::/8", "fd00:ec2::254",
             "fd20:ce::254"}));
  // 6to4 and Teredo carry an IPv4 address that nobody has looked at.
  static const auto& local = *new std::vector<policy::Prefix>(
      Parse({"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "198.18.0.0/15", "fc00::/7",
             "fec0::/10", "2002::/16", "2001::/32"}));
  if (In(host, address)) return AddressScope::kHost;
  return In(local, address) ? AddressScope::kPrivate : AddressScope::kGlobal;
}

bool IsLocalName(absl::string_view name) {
  if (!absl::StrContains(name, '.')) return true;
  for (const absl::string_view suffix :
       {"internal", "private", "corp", "home", "lan", "intranet", "localdomain", "home.arpa", "test"}) {
    if (absl::EndsWith(name, suffix) && name.size() > suffix.size() &&
        name[name.size() - suffix.size() - 1] == '.')
      return true;
  }
  return false;
}

}  // namespace agentmon
