#include "daemon/rpc/call_limits.h"

#include <catch2/catch.hpp>

namespace agentmon {

TEST_CASE("one uid's calls are limited, another's are not affected, and an ended call frees its slot") {
  CallLimits limits(2);
  auto first = limits.Take(1, "streams");
  {
    auto second = limits.Take(1, "streams");
    REQUIRE(second.ok());
    CHECK(absl::IsResourceExhausted(limits.Take(1, "streams").status()));
    CHECK(limits.Take(2, "streams").ok());
  }
  CHECK(limits.Take(1, "streams").ok());
}

}  // namespace agentmon
