#include "shim/run_agent.h"

#include <catch2/catch.hpp>
#include <cerrno>

namespace agentmon {

TEST_CASE("a program that is nowhere in PATH is not found, also where a directory may not be read") {
  CHECK(ErrorOfSearch(EACCES, "no-such-program", "/root:/usr/bin") == ENOENT);
  CHECK(ErrorOfSearch(EACCES, "passwd", "/usr/bin:/etc") == EACCES);  // there, and not to be executed
  CHECK(ErrorOfSearch(EACCES, "/etc/passwd", "/usr/bin") == EACCES);
  CHECK(ErrorOfSearch(ENOEXEC, "no-such-program", "/usr/bin") == ENOEXEC);
}

}  // namespace agentmon
