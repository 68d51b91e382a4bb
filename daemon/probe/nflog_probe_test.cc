#include "daemon/probe/nflog_probe.h"

#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_log.h>
#include <linux/netlink.h>
#include <netinet/in.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <string>
#include <vector>

namespace agentmon {
namespace {

void Append(std::vector<uint8_t>& message, uint16_t type, const std::string& value) {
  nlattr attribute{static_cast<uint16_t>(sizeof(nlattr) + value.size()), type};
  const auto* head = reinterpret_cast<const uint8_t*>(&attribute);
  message.insert(message.end(), head, head + sizeof(attribute));
  message.insert(message.end(), value.begin(), value.end());
  message.resize(NLA_ALIGN(message.size()));
}

std::vector<uint8_t> Entry(const std::string& prefix, const std::string& packet) {
  std::vector<uint8_t> message(sizeof(nfgenmsg));
  Append(message, NFULA_PREFIX, prefix + '\0');
  Append(message, NFULA_PAYLOAD, packet);
  Append(message, NFULA_UID, std::string("\0\0\x03\xe8", 4));
  return message;
}

std::string Packet4(char protocol, const std::string& behind, char fragment = 0) {
  std::string packet(20, '\0');
  packet[0] = 0x45;
  packet[7] = fragment;
  packet[9] = protocol;
  packet[16] = 10;
  packet[19] = 7;
  return packet + behind;
}

TEST_CASE("a log entry tells session, user, address, protocol and port") {
  const auto packet =
      ParseLogEntry(Entry("agentmon 4711", Packet4(IPPROTO_TCP, std::string("\x30\x39\x01\xbb", 4))));
  REQUIRE(packet.has_value());
  CHECK(packet->cgroup_id == 4711);
  CHECK(packet->uid == 1000);
  CHECK(policy::ToString(packet->destination) == "10.0.0.7");
  CHECK(packet->protocol == IPPROTO_TCP);
  CHECK(packet->port == 443);
}

TEST_CASE("extensions of IPv6 stand between address and port") {
  std::string packet(40, '\0');
  packet[0] = 0x60;
  packet[6] = IPPROTO_DSTOPTS;
  packet[24] = 0x20;
  packet[25] = 0x01;
  packet[39] = 9;
  packet += std::string("\x11\0\0\0\0\0\0\0", 8) + std::string("\0\x01\0\x35", 4);
  const auto got = ParseLogEntry(Entry("agentmon 1", packet));
  REQUIRE(got.has_value());
  CHECK(policy::ToString(got->destination) == "2001::9");
  CHECK(got->protocol == IPPROTO_UDP);
  CHECK(got->port == 53);
}

TEST_CASE("what has no ports has port 0") {
  CHECK(ParseLogEntry(Entry("agentmon 1", Packet4(IPPROTO_ICMP, "\x08\x01\x02\x03")))->port == 0);
  CHECK(ParseLogEntry(Entry("agentmon 1", Packet4(IPPROTO_UDP, "\x08\x01\x02\x03", 5)))->port == 0);
  CHECK(ParseLogEntry(Entry("agentmon 1", Packet4(IPPROTO_UDP, "")))->port == 0);
}

TEST_CASE("entries of others and damaged ones are none") {
  const std::string packet = Packet4(IPPROTO_UDP, std::string("\0\1\0\1", 4));
  CHECK_FALSE(ParseLogEntry(Entry("ufw", packet)).has_value());
  CHECK_FALSE(ParseLogEntry(Entry("agentmon x", packet)).has_value());
  CHECK_FALSE(ParseLogEntry(Entry("agentmon 1", "")).has_value());
  CHECK_FALSE(ParseLogEntry(Entry("agentmon 1", packet.substr(0, 12))).has_value());
  const std::vector<uint8_t> whole = Entry("agentmon 1", packet);
  for (size_t size = 0; size < whole.size(); ++size) {
    const std::vector<uint8_t> cut(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(size));
    ParseLogEntry(cut);  // must not read past its end
  }
}

}  // namespace
}  // namespace agentmon
