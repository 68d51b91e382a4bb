#include "common/kernel/bound_name.h"

#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstring>

#include "common/base/unique_fd.h"

namespace agentmon {

TEST_CASE("a socket's file leads to the name that it was bound to, also when it was moved") {
  char folder[] = "/tmp/agentmon-bound-XXXXXX";
  REQUIRE(mkdtemp(folder) != nullptr);
  const std::string name = std::string(folder) + "/before", after = std::string(folder) + "/after";
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, name.data(), name.size());
  const UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  REQUIRE(bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0);
  REQUIRE(rename(name.c_str(), after.c_str()) == 0);
  struct stat st {};
  REQUIRE(stat(after.c_str(), &st) == 0);
  const auto bound = BoundName(st);
  REQUIRE(bound.ok());
  CHECK(*bound == name);
  REQUIRE(stat(folder, &st) == 0);
  const auto none = BoundName(st);
  REQUIRE(none.ok());
  CHECK(none->empty());
  unlink(after.c_str());
  rmdir(folder);
}

}  // namespace agentmon
