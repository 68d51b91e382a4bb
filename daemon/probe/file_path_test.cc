#include "daemon/probe/file_path.h"

#include <unistd.h>

#include <filesystem>

#include <catch2/catch.hpp>

namespace agentmon {

TEST_CASE("paths are normalized without looking at files") {
  CHECK(NormalizePath("/a//b/./c/../d/") == "/a/b/d");
  CHECK(NormalizePath("/../..") == "/");
  CHECK(NormalizePath("a/../..") == "");
}

TEST_CASE("a name joins its base unless it is absolute or empty") {
  CHECK(JoinName({"/base", "x/y"}) == "/base/x/y");
  CHECK(JoinName({"/", "x"}) == "/x");
  CHECK(JoinName({"", "/abs/../x"}) == "/x");
  CHECK(JoinName({"/base/f", ""}) == "/base/f");
}

TEST_CASE("a process that is gone leaves names as they were written") {
  PathResolver resolver;
  CHECK(resolver.Resolve(0, 0, {"/proc", "self/../x/y"}, 1) == "/proc/x/y");
}

TEST_CASE("procfs names that lead to the reader lead to the caller") {
  PathResolver resolver;
  CHECK(resolver.Resolve(getpid(), 77, {"", "/proc/self/task/x"}, 1) == "/proc/77/task/x");
  CHECK(resolver.Resolve(getpid(), 77, {"", "/dev/fd/3"}, 1) == "/proc/77/fd/3");
  CHECK(resolver.Resolve(getpid(), 77, {"", "/dev/null"}, 1) == "/dev/null");
  char name[] = "/tmp/agentmon-path-XXXXXX";
  REQUIRE(mkdtemp(name) != nullptr);
  const std::string link = std::string(name) + "/l";
  std::filesystem::create_directory_symlink("/proc/self", link);
  CHECK(resolver.Resolve(getpid(), 77, {"", link + "/x"}, 1) == "/proc/77/x");
  std::filesystem::remove_all(name);
}

}  // namespace agentmon
