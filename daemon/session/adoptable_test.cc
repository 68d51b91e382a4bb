#include "daemon/session/adoptable.h"

#include <stdlib.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <string>

namespace agentmon {

TEST_CASE("a process that ends while it is looked at is not found, and nothing else happens") {
  char root[] = "/tmp/adoptable-XXXXXX";
  REQUIRE(mkdtemp(root) != nullptr);
  const std::filesystem::path process = std::filesystem::path(root) / "4711";
  std::filesystem::create_directory(process);
  std::ofstream(process / "cgroup") << "0::/user.slice\n";
  const ProcFs proc{std::string(root)};
  CHECK(absl::IsNotFound(CheckMovable(proc, Caller(), 4711)));  // its stat is gone already
  std::ofstream(process / "stat") << "4711 (sh) S 1 4711 4711 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 100 0 0\n";
  CHECK_FALSE(absl::IsNotFound(CheckMovable(proc, Caller(), 4711)));  // the control: a step further
  std::filesystem::remove_all(root);
}

}  // namespace agentmon
