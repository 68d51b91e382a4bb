#include "daemon/rpc/protobuf_log.h"

#include <catch2/catch.hpp>

namespace agentmon {

TEST_CASE("of many complaints the first is told, then one a minute that counts the others") {
  ComplaintGate gate;
  const absl::Time start = absl::UnixEpoch() + absl::Hours(1);
  CHECK(gate.Pass(start) == 1);
  for (int i = 1; i < 60; ++i) CHECK(gate.Pass(start + absl::Seconds(i)) == 0);
  CHECK(gate.Pass(start + absl::Seconds(60)) == 60);
  CHECK(gate.Pass(start + absl::Minutes(5)) == 1);
}

}  // namespace agentmon
