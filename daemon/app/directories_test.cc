#include "daemon/app/directories.h"

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>

namespace agentmon {

TEST_CASE("a directory is made with its mode, and one that others may write or a link is refused") {
  char pattern[] = "/tmp/directories-XXXXXX";
  const std::string dir = mkdtemp(pattern);
  const std::string made = dir + "/a/b";
  CHECK(PrepareDirectory(made, 0700).ok());
  struct stat st {};
  REQUIRE(stat(made.c_str(), &st) == 0);
  CHECK((st.st_mode & 07777) == 0700);
  CHECK(PrepareDirectory(made, 0755).ok());
  REQUIRE(stat(made.c_str(), &st) == 0);
  CHECK((st.st_mode & 07777) == 0755);
  std::filesystem::create_symlink(made, dir + "/link");
  CHECK_FALSE(PrepareDirectory(dir + "/link", 0700).ok());
  chmod(made.c_str(), 0777);
  CHECK(absl::IsPermissionDenied(PrepareDirectory(made, 0700)));
  std::filesystem::remove_all(dir);
}

TEST_CASE("an instance is named by its runtime directory") {
  CHECK(InstanceName("/run/agentmon") == "main");
  CHECK(InstanceName("/run//agentmon/") == "main");
  CHECK(InstanceName("/tmp/x") == InstanceName("/tmp/./x/"));
  CHECK(InstanceName("/tmp/x") != InstanceName("/tmp/y"));
}

}  // namespace agentmon
