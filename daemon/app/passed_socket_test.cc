#include "daemon/app/passed_socket.h"

#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstring>

namespace agentmon {
namespace {

struct Folder {
  Folder() {
    char name[] = "/tmp/passed-socket-XXXXXX";
    path = ::mkdtemp(name);
  }
  ~Folder() {
    ::unlink(socket().c_str());
    ::rmdir(path.c_str());
  }
  std::string socket() const { return path + "/agentmond.sock"; }
  std::string path;
};

UniqueFd ListenerAt(const std::string& path) {
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
  REQUIRE(::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
  REQUIRE(::listen(fd.get(), 1) == 0);
  return fd;
}

}  // namespace

TEST_CASE("a socket that listens where the configuration says is taken") {
  const Folder folder;
  const UniqueFd listener = ListenerAt(folder.socket());
  CHECK(CheckListensOn(listener.get(), folder.socket()).ok());
}

TEST_CASE("a socket of another path is refused, and both paths are named") {
  const Folder folder;
  const UniqueFd listener = ListenerAt(folder.socket());
  const std::string said(CheckListensOn(listener.get(), "/run/other.sock").message());
  CHECK_THAT(said, Catch::Matchers::Contains(folder.socket()));
  CHECK_THAT(said, Catch::Matchers::Contains("/run/other.sock"));
}

TEST_CASE("a socket of another kind is refused") {
  const UniqueFd datagram(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  CHECK_FALSE(CheckListensOn(datagram.get(), "/run/x").ok());
  const UniqueFd internet(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  CHECK_FALSE(CheckListensOn(internet.get(), "/run/x").ok());
}

TEST_CASE("without a service manager there is no passed socket") {
  ::unsetenv("LISTEN_FDS");
  const auto none = TakePassedSocket("/run/x");
  REQUIRE(none.ok());
  CHECK_FALSE(none->valid());
}

}  // namespace agentmon
