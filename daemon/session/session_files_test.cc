#include "daemon/session/session_files.h"

#include <stdlib.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <fstream>

namespace agentmon {

TEST_CASE("a session file is read back and a damaged one is removed") {
  char dir[] = "/tmp/session-files-XXXXXX";
  REQUIRE(mkdtemp(dir) != nullptr);
  const SessionFiles files(std::string(dir) + "/sessions");
  v1::Session session;
  session.set_id("s1");
  session.set_uid(7);
  REQUIRE(files.Write(session).ok());
  session.set_uid(8);
  REQUIRE(files.Write(session).ok());
  const std::string damaged = std::string(dir) + "/sessions/s2";
  std::ofstream(damaged) << "\xff\xff garbage";
  const auto read = files.ReadAll();
  REQUIRE(read.size() == 1);
  CHECK(read[0].uid() == 8);
  CHECK(access(damaged.c_str(), F_OK) != 0);
  files.Remove("s1");
  CHECK(files.ReadAll().empty());
  rmdir((std::string(dir) + "/sessions").c_str());
  rmdir(dir);
}

}  // namespace agentmon
