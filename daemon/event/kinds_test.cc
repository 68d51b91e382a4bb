#include "daemon/event/kinds.h"

#include <catch2/catch.hpp>

namespace agentmon {

TEST_CASE("a kind is found by its name and by its group") {
  CHECK(KindsByName("exec") == std::vector<v1::EventKind>{v1::EXEC});
  CHECK(KindsByName("process") == std::vector<v1::EventKind>{v1::EXEC, v1::FORK, v1::EXIT});
  CHECK(KindsByName("unix") == std::vector<v1::EventKind>{v1::UNIX_CONNECT, v1::UNIX_SEND});
  CHECK(KindsByName("net").size() == 6);
  CHECK(KindsByName("file").size() == 14);
  CHECK(KindsByName("nonsense").empty());
}

}  // namespace agentmon
