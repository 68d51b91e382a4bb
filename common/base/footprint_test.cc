#include "common/base/footprint.h"

#include <catch2/catch.hpp>
#include <fstream>
#include <string>

namespace agentmon {
namespace {

long FileKilobytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("RssFile:", 0) == 0) return std::stol(line.substr(8));
  }
  return -1;
}

}  // namespace

TEST_CASE("pages of the program are given back, and it goes on") {
  const long before = FileKilobytes();
  REQUIRE(before > 0);
  GiveBackMemory();
  CHECK(FileKilobytes() < before);
}

}  // namespace agentmon
