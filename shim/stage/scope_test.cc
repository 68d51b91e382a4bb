#include "shim/stage/scope.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>
#include <string>

#include "common/base/unique_fd.h"
#include "common/kernel/landlock.h"
#include "shim/stage/child_fixture.h"
#include "shim/stage/no_new_privileges.h"

namespace agentmon {
namespace {

bool Enter() { return SetNoNewPrivileges().ok() && EnterScope(LandlockAbi()).ok(); }
bool CanScope() { return LandlockAbi() >= kLandlockScopeAbi; }

int Abstract(bool bind_it) {
  static const UniqueFd server(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const int size =
      snprintf(address.sun_path + 1, 64, "agentmon-scope-test-%d", bind_it ? getpid() : getppid());
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + size);
  const auto* at = reinterpret_cast<const sockaddr*>(&address);
  if (bind_it) return ErrorOf(bind(server.get(), at, length) != 0 ? -1 : listen(server.get(), 8));
  const UniqueFd client(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  return ErrorOf(connect(client.get(), at, length));
}

// A file from one directory to another; errno.
int Moved() {
  char directory[] = "/tmp/scope-test-XXXXXX";
  if (mkdtemp(directory) == nullptr) return ErrorOf(-1);
  const std::string a = std::string(directory) + "/a", b = std::string(directory) + "/b";
  mkdir(a.c_str(), 0700);
  mkdir(b.c_str(), 0700);
  close(creat((a + "/x").c_str(), 0600));
  const int error = ErrorOf(rename((a + "/x").c_str(), (b + "/x").c_str()));
  unlink((b + "/x").c_str());
  rmdir(a.c_str());
  rmdir(b.c_str());
  rmdir(directory);
  return error;
}

}  // namespace

TEST_CASE("an ABI that cannot close a session off says so") {
  for (int abi = 0; abi < kLandlockReferAbi; ++abi) {
    const absl::Status status = EnterScope(abi);
    CHECK(absl::IsFailedPrecondition(status));
    CHECK(std::string(status.message()) == "Landlock of this kernel has ABI " + std::to_string(abi) +
                                               ", and closing off a session needs 2 (Linux 5.19)");
  }
}

TEST_CASE("a domain of an older ABI closes the insides of outsiders, and leaves moves between directories") {
  if (!CanScope()) return;
  for (int abi = kLandlockReferAbi; abi < kLandlockScopeAbi; ++abi) {
    const std::string outsider = "/proc/" + std::to_string(getpid()) + "/environ";
    const auto look = [&] { return ErrorOf(open(outsider.c_str(), O_RDONLY | O_CLOEXEC)); };
    const auto in_domain = [&](const auto& act) {
      return InChild(
          [&] { return SetNoNewPrivileges().ok() && EnterScope(abi).ok() ? act() : kStageFailed; });
    };
    CHECK(InChild(look) == 0);
    CHECK(in_domain(look) == EACCES);
    CHECK(in_domain(Moved) == 0);
  }
}

TEST_CASE("signals to a process outside fail with EPERM, and reach it without the domain") {
  if (!CanScope()) return;
  const pid_t outsider = getpid();
  CHECK(InChild([&] { return ErrorOf(kill(outsider, 0)); }) == 0);
  CHECK(InChild([&] { return Enter() ? ErrorOf(kill(outsider, 0)) : kStageFailed; }) == EPERM);
  CHECK(InChild([&] { return Enter() ? ErrorOf(kill(outsider, SIGCONT)) : kStageFailed; }) == EPERM);
}

TEST_CASE("abstract sockets of outside are closed, those of the session are not") {
  if (!CanScope()) return;
  REQUIRE(Abstract(true) == 0);
  CHECK(InChild([] { return Abstract(false); }) == 0);
  CHECK(InChild([] { return Enter() ? Abstract(false) : kStageFailed; }) == EPERM);
  CHECK(InChild([] {
          if (!Enter()) return kStageFailed;
          const UniqueFd server(socket(AF_UNIX, SOCK_STREAM, 0)), client(socket(AF_UNIX, SOCK_STREAM, 0));
          sockaddr_un address{};
          address.sun_family = AF_UNIX;
          snprintf(address.sun_path + 1, 64, "agentmon-inside-%d", getpid());
          const auto* at = reinterpret_cast<const sockaddr*>(&address);
          if (bind(server.get(), at, sizeof(address)) != 0 || listen(server.get(), 1) != 0) return 200;
          return ErrorOf(connect(client.get(), at, sizeof(address)));
        }) == 0);
}

TEST_CASE("other processes' files in /proc are closed") {
  if (!CanScope()) return;
  const std::string root = "/proc/" + std::to_string(getpid()) + "/root/etc/passwd";
  const auto open_it = [&] { return ErrorOf(open(root.c_str(), O_RDONLY)); };
  CHECK(InChild(open_it) == 0);
  CHECK(InChild([&] { return Enter() ? open_it() : kStageFailed; }) == EACCES);
}

TEST_CASE("children can be signalled and traced, files move between directories") {
  if (!CanScope()) return;
  CHECK(InChild([] {
          if (!Enter()) return kStageFailed;
          const pid_t child = fork();
          if (child == 0)
            for (;;) pause();
          if (ptrace(PTRACE_SEIZE, child, 0, 0) != 0) return 1;
          if (kill(child, SIGKILL) != 0) return 2;
          return Moved() == 0 ? 0 : 3;
        }) == 0);
}

TEST_CASE("mounts in a namespace of its own go on working") {
  if (!CanScope()) return;
  const auto mount_it = [] {
    if (unshare(geteuid() == 0 ? CLONE_NEWNS : CLONE_NEWUSER | CLONE_NEWNS) != 0) return ErrorOf(-1);
    if (mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return ErrorOf(-1);
    return ErrorOf(mount("none", "/tmp", "tmpfs", 0, nullptr));
  };
  const int without = InChild(mount_it);
  CHECK(InChild([&] { return Enter() ? mount_it() : kStageFailed; }) == without);
}

}  // namespace agentmon
