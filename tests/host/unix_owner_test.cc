// Whose a bound unix socket is.
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <string>

#include <catch2/catch.hpp>

#include "absl/strings/str_cat.h"
#include "daemon/probe/bpf_ring.h"
#include "daemon/probe/unix_owner.h"
#include "tests/host/kernel_fixture.h"
#include "tests/host/program.h"

namespace agentmon {
namespace {

int Bound(const std::string& name, int type, bool listening) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, name.data(), name.size());
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
  const int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
  REQUIRE(bind(fd, reinterpret_cast<const sockaddr*>(&address), length) == 0);
  if (listening) REQUIRE(listen(fd, 4) == 0);
  return fd;
}

struct stat Stat(const std::string& path) {
  struct stat st {};
  REQUIRE(stat(path.c_str(), &st) == 0);
  return st;
}

// This process is in the session, and leaves it at the end.
class Inside {
 public:
  Inside(const Cgroup& session, const Cgroup& outside) : outside_(outside) {
    REQUIRE(session.AddProcess(getpid()).ok());
  }
  ~Inside() { outside_.AddProcess(getpid()).IgnoreError(); }

 private:
  const Cgroup& outside_;
};

TEST_CASE("a socket that a session serves is its own, and nobody else's") {
  PollTaskRunner runner;
  TestCgroup base;
  const Cgroup rest = *Cgroup::Open(*FindCgroup2Mount());
  TestCgroup session(base->path()), other(base->path());
  const auto ring = BpfRing::Create(base->fd(), runner);
  REQUIRE(ring.ok());
  const auto owner = UnixOwner::Create((*ring)->session_level());
  REQUIRE(owner.ok());
  TempDir dir;
  const std::string abstract = absl::StrCat(std::string(1, '\0'), "agentmon-owner-", getpid());
  const absl::string_view name = absl::string_view(abstract).substr(1);
  const UniqueFd outer(Bound(dir.path() + "/outer", SOCK_STREAM, true));
  {
    const Inside inside(*session, rest);
    const UniqueFd stream(Bound(dir.path() + "/stream", SOCK_STREAM, true));
    const UniqueFd datagram(Bound(dir.path() + "/datagram", SOCK_DGRAM, false));
    const UniqueFd silent(Bound(dir.path() + "/silent", SOCK_STREAM, false));
    const UniqueFd nameless(Bound(abstract, SOCK_SEQPACKET, true));
    for (const char* file : {"/stream", "/datagram"}) {
      CAPTURE(file);
      CHECK((*owner)->IsOwn(session->id(), Stat(dir.path() + file)));
      CHECK_FALSE((*owner)->IsOwn(other->id(), Stat(dir.path() + file)));
    }
    CHECK_FALSE((*owner)->IsOwn(session->id(), Stat(dir.path() + "/silent")));
    CHECK((*owner)->IsOwnAbstract(session->id(), name, SOCK_SEQPACKET));
    CHECK_FALSE((*owner)->IsOwnAbstract(session->id(), name, SOCK_STREAM));
    CHECK_FALSE((*owner)->IsOwnAbstract(session->id(), name, SOCK_DGRAM));
    CHECK_FALSE((*owner)->IsOwnAbstract(session->id(), name.substr(1), SOCK_SEQPACKET));
    CHECK_FALSE((*owner)->IsOwnAbstract(other->id(), name, SOCK_SEQPACKET));
    // What the connection to a server outside has of its name does not make that the session's.
    sockaddr_un to{};
    to.sun_family = AF_UNIX;
    std::strcpy(to.sun_path, (dir.path() + "/outer").c_str());
    const UniqueFd client(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    REQUIRE(connect(client.get(), reinterpret_cast<const sockaddr*>(&to), sizeof(to)) == 0);
    const UniqueFd accepted(accept(outer.get(), nullptr, nullptr));
    CHECK(accepted.valid());
    CHECK_FALSE((*owner)->IsOwn(session->id(), Stat(dir.path() + "/outer")));
  }
  CHECK_FALSE((*owner)->IsOwn(session->id(), Stat(dir.path() + "/stream")));  // nobody serves it any more
  CHECK_FALSE((*owner)->IsOwnAbstract(session->id(), name, SOCK_SEQPACKET));
}

}  // namespace
}  // namespace agentmon
