#include "daemon/enforce/nft_ruleset.h"

#include <netinet/in.h>

#include <utility>

#include "absl/strings/str_cat.h"

namespace agentmon {
namespace {

constexpr size_t kElementsOfOneLine = 500;

std::string TextOf(bool v6, absl::uint128 number) {
  uint8_t bytes[16];
  const int size = v6 ? 16 : 4;
  for (int i = size - 1; i >= 0; --i, number >>= 8)
    bytes[i] = static_cast<uint8_t>(absl::Uint128Low64(number) & 0xff);
  if (!v6) return policy::ToString(policy::FromBytes4(bytes));
  policy::Address address;  // as it is: what is embedded stays embedded
  address.v6 = true;
  std::copy(bytes, bytes + 16, address.bytes.begin());
  return policy::ToString(address);
}

std::string TextOf(const AddressRange& range) {
  const std::string low = TextOf(range.v6, range.low);
  return range.low == range.high ? low : absl::StrCat(low, "-", TextOf(range.v6, range.high));
}

std::string TextOf(const PortSpan& ports) {
  return ports.low == ports.high ? absl::StrCat(ports.low) : absl::StrCat(ports.low, "-", ports.high);
}

absl::string_view ProtocolName(uint8_t protocol) { return protocol == IPPROTO_TCP ? "tcp" : "udp"; }

// The elements of the sets of a policy, each family and kind for itself.
struct Sets {
  std::vector<std::string> all, other, some;
};

Sets SetsOf(const PacketRules& rules, bool v6) {
  Sets out;
  for (const AddressRange& range : rules.all) {
    if (range.v6 == v6) out.all.push_back(TextOf(range));
  }
  for (const AddressRange& range : rules.other) {
    if (range.v6 == v6) out.other.push_back(TextOf(range));
  }
  for (const DeniedRange& range : rules.some) {
    if (range.addresses.v6 != v6) continue;
    out.some.push_back(absl::StrCat(TextOf(range.addresses), " . ", ProtocolName(range.protocol), " . ",
                                    TextOf(range.ports)));
  }
  return out;
}

std::string PolicySet(uint32_t number, absl::string_view kind, bool v6) {
  return absl::StrCat("p", number, ".", kind, v6 ? "6" : "4");
}

std::string StopOf(uint64_t cgroup_id) { return absl::StrCat("s", cgroup_id, ".stop"); }
std::string NamesOf(uint64_t cgroup_id, bool v6) {
  return absl::StrCat("s", cgroup_id, v6 ? ".names6" : ".names4");
}

constexpr std::pair<bool, const char*> kFamilies[] = {{false, "ip"}, {true, "ip6"}};

}  // namespace

std::string NftRuleset::On(absl::string_view verb, absl::string_view object) const {
  return absl::StrCat(verb, " inet ", options_.table, " ", object);
}

std::string NftRuleset::Delete() const {
  return absl::StrCat("add table inet ", options_.table, "\ndelete table inet ", options_.table, "\n");
}

std::string NftRuleset::AddTable() const {
  return absl::StrCat("add table inet ", options_.table, "\n",  //
                      On("add map", "sessions { type cgroupsv2 : verdict; }\n"),
                      On("add chain", "output { type filter hook output priority 0; policy accept; }\n"),
                      On("add rule", "output socket cgroupv2 level "), options_.level, " vmap @sessions\n");
}

std::string NftRuleset::AddPolicy(uint32_t number, const PacketRules& rules) const {
  std::string out;
  const auto add = [&](absl::string_view kind, bool v6, const std::string& type,
                       const std::vector<std::string>& elements) {
    if (elements.empty()) return;
    const std::string set = PolicySet(number, kind, v6);
    absl::StrAppend(&out, On("add set", set), " { type ", type, "; flags interval; }\n");
    for (size_t i = 0; i < elements.size(); ++i) {
      const bool first = i % kElementsOfOneLine == 0;
      if (first) absl::StrAppend(&out, On("add element", set), " { ");
      absl::StrAppend(&out, first ? "" : ", ", elements[i]);
      if (i + 1 == elements.size() || (i + 1) % kElementsOfOneLine == 0) absl::StrAppend(&out, " }\n");
    }
  };
  for (const auto& [v6, unused] : kFamilies) {
    const std::string type = v6 ? "ipv6_addr" : "ipv4_addr";
    const Sets sets = SetsOf(rules, v6);
    add("all", v6, type, sets.all);
    add("other", v6, type, sets.other);
    add("some", v6, type + " . inet_proto . inet_service", sets.some);
  }
  return out;
}

std::string NftRuleset::RemovePolicy(uint32_t number, const PacketRules& rules) const {
  std::string out;
  for (const auto& [v6, unused] : kFamilies) {
    const Sets sets = SetsOf(rules, v6);
    for (const auto& [kind, elements] :
         {std::pair("all", &sets.all), std::pair("other", &sets.other), std::pair("some", &sets.some)}) {
      if (!elements->empty()) absl::StrAppend(&out, On("delete set", PolicySet(number, kind, v6)), "\n");
    }
  }
  return out;
}

std::string NftRuleset::AddSession(const NftSession& session) const {
  const uint64_t id = session.cgroup_id;
  std::string out = absl::StrCat(On("add counter", ChainOf(id)), ".stopped\n",  //
                                 On("add chain", StopOf(id)), "\n", On("add chain", ChainOf(id)), "\n");
  for (const auto& [v6, unused] : kFamilies) {
    absl::StrAppend(&out, On("add map", NamesOf(id, v6)), " { type ", v6 ? "ipv6_addr" : "ipv4_addr",
                    " . inet_proto . inet_service : verdict; flags interval, timeout; }\n");
  }
  absl::StrAppend(&out, Rules(session), AddNames(id, session.names));
  // Last: from here on packets come to its chain.
  return absl::StrCat(out, On("add element", "sessions { \""), session.cgroup, "\" : goto ", ChainOf(id),
                      " }\n");
}

std::string NftRuleset::ReplaceSession(const NftSession& session) const {
  const uint64_t id = session.cgroup_id;
  return absl::StrCat(On("flush chain", ChainOf(id)), "\n", On("flush chain", StopOf(id)), "\n",
                      Rules(session), On("flush map", NamesOf(id, false)), "\n",
                      On("flush map", NamesOf(id, true)), "\n", AddNames(id, session.names));
}

std::string NftRuleset::Rules(const NftSession& session) const {
  const uint64_t id = session.cgroup_id;
  const std::string stop = absl::StrCat(" goto ", StopOf(id), "\n");
  std::string out;
  const auto rule = [&](absl::string_view text) {
    absl::StrAppend(&out, On("add rule", ChainOf(id)), " ", text);
  };
  const auto stop_rule = [&](absl::string_view text) {
    absl::StrAppend(&out, On("add rule", StopOf(id)), " ", text, "\n");
  };
  stop_rule(absl::StrCat("counter name \"", ChainOf(id), ".stopped\""));
  if (options_.log_group.has_value()) {
    stop_rule(absl::StrCat("limit rate 20/second burst 100 packets log prefix \"", kNftLogPrefix, id,
                           "\" group ", *options_.log_group, " snaplen 128 queue-threshold 1"));
  }
  stop_rule("meta l4proto tcp reject with tcp reset");
  stop_rule("drop");
  // The kernel cuts packets of ordinary sockets after this hook. A fragment has no ports to look at.
  rule("ip frag-off & 0x3fff != 0" + stop);
  rule("exthdr frag exists" + stop);
  if (options_.stop_routes) {
    rule("ip hdrlength > 5" + stop);
    rule("exthdr rt exists" + stop);
  }
  // What a connection sends that is there already, or that somebody has opened to the session.
  rule("meta l4proto tcp tcp flags & (syn | ack) != syn return\n");
  if (session.resolver.v4_port != 0) {
    rule(absl::StrCat("ip daddr ", policy::ToString(session.resolver.v4),
                      " meta l4proto { tcp, udp } th dport ", session.resolver.v4_port, " return\n"));
  }
  if (session.resolver.v6_port != 0) {
    rule(absl::StrCat("ip6 daddr ", policy::ToString(session.resolver.v6),
                      " meta l4proto { tcp, udp } th dport ", session.resolver.v6_port, " return\n"));
  }
  if (session.policy == 0) {
    rule(absl::StrCat("goto ", StopOf(id), "\n"));
    return out;
  }
  for (const auto& [v6, ip] : kFamilies) {
    const std::string ports = absl::StrCat(ip, " daddr . meta l4proto . th dport ");
    rule(absl::StrCat(ports, "vmap @", NamesOf(id, v6), "\n"));
    const Sets sets = SetsOf(*session.rules, v6);
    const auto set = [&, v6 = v6](absl::string_view kind) {
      return absl::StrCat("@", PolicySet(session.policy, kind, v6), stop);
    };
    if (!sets.all.empty()) rule(absl::StrCat(ip, " daddr ", set("all")));
    if (!sets.other.empty()) rule(absl::StrCat("meta l4proto != { tcp, udp } ", ip, " daddr ", set("other")));
    if (!sets.some.empty()) rule(ports + set("some"));
  }
  return out;
}

std::string NftRuleset::AddNames(uint64_t cgroup_id,
                                 const std::map<policy::Address, NamedAddress>& names) const {
  std::string out;
  for (const NftElement& element : NameElements(cgroup_id, names)) {
    absl::StrAppend(&out, On("add element", element.map), " { ", policy::ToString(element.address), " . ",
                    ProtocolName(element.protocol), " . ", TextOf(PortSpan{element.low, element.high}),
                    " timeout ", absl::ToInt64Seconds(element.timeout),
                    "s : ", element.chain.empty() ? "return" : absl::StrCat("goto ", element.chain), " }\n");
  }
  return out;
}

std::vector<std::string> NftRuleset::NameMaps(uint64_t cgroup_id) {
  return {NamesOf(cgroup_id, false), NamesOf(cgroup_id, true)};
}

std::vector<NftElement> NftRuleset::NameElements(uint64_t cgroup_id,
                                                 const std::map<policy::Address, NamedAddress>& names) {
  std::vector<NftElement> out;
  for (const auto& [address, named] : names) {
    for (const NamedPorts& ports : named.ports) {
      out.push_back({NamesOf(cgroup_id, address.v6), address, ports.protocol, ports.ports.low,
                     ports.ports.high, named.timeout, ports.denied ? StopOf(cgroup_id) : ""});
    }
  }
  return out;
}

std::string NftRuleset::ChainOf(uint64_t cgroup_id) { return absl::StrCat("s", cgroup_id); }

std::string NftRuleset::CounterOf(uint64_t cgroup_id) { return absl::StrCat(ChainOf(cgroup_id), ".stopped"); }

std::string NftRuleset::RemoveSession(uint64_t cgroup_id, absl::string_view cgroup) const {
  const std::string chain = ChainOf(cgroup_id), stop = StopOf(cgroup_id);
  std::string out = absl::StrCat(On("delete element", "sessions { \""), cgroup, "\" }\n",  //
                                 On("flush chain", chain), "\n");
  for (const auto& [v6, unused] : kFamilies)
    absl::StrAppend(&out, On("delete map", NamesOf(cgroup_id, v6)), "\n");
  return absl::StrCat(out, On("delete chain", chain), "\n", On("flush chain", stop), "\n",
                      On("delete chain", stop), "\n", On("delete counter", chain), ".stopped\n");
}

}  // namespace agentmon
