#include "client/policy/network_options.h"

#include <catch2/catch.hpp>

#include "common/policy/evaluate.h"
#include "common/policy/policy_proto.h"

namespace agentmon::policy_cli {
namespace {

// The layer over a base that allows everything.
bool Denied(const NetworkOptions& options, absl::string_view address, uint16_t port) {
  const auto layer = NetworkLayer(options);
  REQUIRE(layer.ok());
  policy::Diagnostics diagnostics;
  const auto document = std::make_shared<policy::Document>(policy::FromProto(*layer, diagnostics));
  REQUIRE(diagnostics.empty());
  auto base = std::make_shared<policy::Document>();
  base->defaults.fill(policy::Decision::kAllow);
  const auto compiled = policy::Compile(
      {{policy::LayerKind::kBase, base}, {policy::LayerKind::kSession, document}}, policy::CompileOptions());
  REQUIRE(compiled.snapshot != nullptr);
  return policy::Evaluate(*compiled.snapshot, policy::ConnectSubject(*policy::ParseAddress(address), port),
                          {})
      .Stops();
}

}  // namespace

TEST_CASE("what is denied is denied, and where something is allowed the rest is denied") {
  CHECK(Denied({{}, {"10.0.0.0/8"}, false}, "10.1.2.3", 80));
  CHECK_FALSE(Denied({{}, {"10.0.0.0/8"}, false}, "11.1.2.3", 80));
  CHECK_FALSE(Denied({{"127.0.0.1:8080"}, {}, false}, "127.0.0.1", 8080));
  CHECK(Denied({{"127.0.0.1:8080"}, {}, false}, "127.0.0.1", 80));
  CHECK_FALSE(Denied({{"[::1]:8080"}, {}, true}, "::1", 8080));
  CHECK(Denied({{"[::1]:8080"}, {}, true}, "::1", 81));
  CHECK_FALSE(Denied({{"fd00::/8"}, {}, true}, "fd00::5", 1));
  CHECK(Denied({{"10.0.0.0/8"}, {"10.1.0.0/16"}, false}, "10.1.2.3", 80));
  CHECK(Denied({{}, {}, true}, "127.0.0.1", 80));
  CHECK_FALSE(Denied({{"localhost"}, {}, true}, "127.0.0.1", 80));
  CHECK(Denied({{"*.example.com:443"}, {}, false}, "192.0.2.1", 443));
  CHECK_FALSE(Denied({{"**"}, {}, false}, "192.0.2.1", 443));
  CHECK_FALSE(Denied({{"127.0.0.1:8000-8010"}, {}, false}, "127.0.0.1", 8010));
  CHECK(Denied({{"127.0.0.1:8000-8010"}, {}, false}, "127.0.0.1", 8011));
}

TEST_CASE("what is no destination is refused by the option's name") {
  for (const char* wrong : {"10.0.0.1/8", "a b", "host:0", "host:99999", "host:9-8", "host:1-2-3", "host:-",
                            "x/y", "", "https://example.org", "*", "a,b", "a:1,b:2", "user@host", "10.1",
                            "10.1:80", "300.1.1.1", "::1:80", "2001:db8::5:443"}) {
    CAPTURE(wrong);
    const auto layer = NetworkLayer({{}, {wrong}, false});
    REQUIRE_FALSE(layer.ok());
    CHECK(std::string(layer.status().message()).find("--deny-net") == 0);
  }
}

TEST_CASE("what is refused says what may be meant") {
  const auto message = [](const char* destination) {
    return std::string(NetworkLayer({{destination}, {}, false}).status().message());
  };
  CHECK(message("a,b:80") ==
        "--allow-net a,b:80: one destination; give the option once for each: "
        "--allow-net a --allow-net b:80");
  CHECK(message("git@host.example:22").find("rules are about hosts: host.example:22") != std::string::npos);
  CHECK(message("10.1").find("10.1.0.0/16") != std::string::npos);
  CHECK(message("::1:80").find("[::1]:80 or [::1:80]") != std::string::npos);
  for (const char* good :
       {"{a,b}.example", "[::1:80]", "[::1]:80", "2001:db8::53", "fe80::12", "host1", "h2.x3", "::1",
        "10.1.2.3", "10.1.2.3:80", "10.1.0.0/16", "::ffff:10.1.2.3", "localhost:80", "1.example"}) {
    CAPTURE(good);
    CHECK(message(good) == "");
  }
}

}  // namespace agentmon::policy_cli
