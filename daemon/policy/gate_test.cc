#include "daemon/policy/gate.h"

#include <catch2/catch.hpp>

#include "common/policy/testing/snapshots.h"

namespace agentmon {
namespace {

policy::Address Of(absl::string_view text) { return *policy::ParseAddress(text); }

}  // namespace

TEST_CASE("a destination is judged by address, port and protocol") {
  const auto current = std::make_shared<policy::CurrentSnapshot>(
      policy::MakeBase("posture: enforce\n"
                       "defaults: {network: deny}\n"
                       "network_rules:\n"
                       "  - {name: dns, cidrs: [10.0.0.1], ports: [53], protocol: udp, decision: allow}\n"));
  Gate gate(current, {});
  const auto stops = [&](absl::string_view address, uint16_t port, uint8_t protocol) {
    return gate.Network(policy::NetworkOp::kConnect, Of(address), port, protocol).stop;
  };
  CHECK_FALSE(stops("10.0.0.1", 53, policy::kUdp));
  CHECK(stops("10.0.0.1", 53, policy::kTcp));
  CHECK(stops("10.0.0.1", 54, policy::kUdp));
  CHECK(stops("10.0.0.2", 53, policy::kUdp));
  CHECK(stops("10.0.0.1", 53, 0));
}

TEST_CASE("a session's own proxy is reached whatever its policy says, and nothing beside it is") {
  const auto current = std::make_shared<policy::CurrentSnapshot>(
      policy::MakeBase("posture: enforce\ndefaults: {network: deny}\n"));
  Gate gate(current, {});
  const auto stops = [&](absl::string_view address, uint16_t port, uint8_t protocol) {
    return gate.Network(policy::NetworkOp::kConnect, Of(address), port, protocol).stop;
  };
  CHECK(stops("127.0.0.1", 3128, policy::kTcp));
  gate.SetProxy(3128);
  CHECK_FALSE(stops("127.0.0.1", 3128, policy::kTcp));
  CHECK_FALSE(stops("0.0.0.0", 3128, policy::kTcp));  // the same place
  CHECK(stops("127.0.0.2", 3128, policy::kTcp));
  CHECK(stops("127.0.0.1", 3128, policy::kUdp));
  CHECK(stops("127.0.0.1", 3129, policy::kTcp));
  gate.SetProxy(0);
  CHECK(stops("127.0.0.1", 3128, policy::kTcp));
  CHECK(stops("127.0.0.1", 0, policy::kTcp));
}

}  // namespace agentmon
