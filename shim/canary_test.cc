#include "shim/canary.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <catch2/catch.hpp>

#include "common/kernel/landlock.h"
#include "common/kernel/refused_calls.h"
#include "shim/stage/child_fixture.h"
#include "shim/stage/no_new_privileges.h"
#include "shim/stage/notify_filter.h"
#include "shim/stage/scope.h"

namespace agentmon {
namespace {

v1::Canary Make(v1::Canary::Act act, const std::string& subject = "") {
  v1::Canary canary;
  canary.set_act(act);
  canary.set_subject(subject);
  return canary;
}

}  // namespace

TEST_CASE("what nothing forbids succeeds, and what fails by itself says how") {
  CHECK(TryCanary(Make(v1::Canary::OPEN_READ, "/etc/passwd"), 0) == 0);
  CHECK(TryCanary(Make(v1::Canary::OPEN_WRITE, "/nonexistent"), 0) == ENOENT);
  CHECK(TryCanary(Make(v1::Canary::EXEC, "/bin/true"), 0) == 0);
  CHECK(TryCanary(Make(v1::Canary::EXEC, "/etc/passwd"), 0) == EACCES);
  CHECK(TryCanary(Make(v1::Canary::UNIX_CONNECT, "/nonexistent"), 0) == ENOENT);
  CHECK(TryCanary(Make(v1::Canary::UNIX_CONNECT, "@agentmon-nobody-listens"), 0) == ECONNREFUSED);
  // The refusal may come before connect returns, or after.
  const int connected = TryCanary(Make(v1::Canary::CONNECT, "127.86.53.9:9"), 0);
  CHECK((connected == ECONNREFUSED || connected == EINPROGRESS));
  CHECK(TryCanary(Make(v1::Canary::SEND, "127.86.53.9:9"), 0) == 0);
  CHECK(TryCanary(Make(v1::Canary::CONNECT, "nowhere"), 0) == EINVAL);
  CHECK(TryCanary(Make(v1::Canary::SIGNAL, std::to_string(SIGURG)), getpid()) == 0);
  CHECK(TryCanary(Make(v1::Canary::SIGNAL, "99"), getpid()) == EINVAL);
  char directory[] = "/tmp/canary-test-XXXXXX";
  REQUIRE(mkdtemp(directory) != nullptr);
  const std::string name = std::string(directory) + "/x";
  CHECK(TryCanary(Make(v1::Canary::CREATE, name), 0) == 0);
  CHECK(TryCanary(Make(v1::Canary::CREATE, name), 0) == EEXIST);
  CHECK(TryCanary(Make(v1::Canary::RENAME, name), 0) == 0);
  CHECK(TryCanary(Make(v1::Canary::UNLINK, name + ".renamed"), 0) == 0);
  rmdir(directory);
}

TEST_CASE("each family's canary fails with EPERM where it is refused, and with something else where not") {
  for (int i = 0; i < kCallFamilies; ++i) {
    const auto family = static_cast<CallFamily>(i);
    const v1::Canary canary = Make(v1::Canary::CALL, std::string(CallFamilyName(family)));
    CAPTURE(canary.subject());
    CHECK(InChild([&] {
            CallFamilies refuse;
            refuse.Add(family);
            return InstallRefusingFilter(refuse).ok() ? TryCanary(canary, 0) : kStageFailed;
          }) == EPERM);
    if (geteuid() == 0) CHECK(InChild([&] { return TryCanary(canary, 0); }) != EPERM);
  }
}

TEST_CASE("the outsider is reached by a signal before the domain and not after") {
  CHECK(InChild([] {
          auto outsider = Outsider::Find();
          if (!outsider.ok() || TryCanary(Make(v1::Canary::SIGNAL), outsider->pid()) != 0) return 1;
          if (LandlockAbi() < kLandlockScopeAbi) return 0;
          if (!SetNoNewPrivileges().ok() || !EnterScope(LandlockAbi()).ok()) return kStageFailed;
          return TryCanary(Make(v1::Canary::SIGNAL), outsider->pid()) == EPERM ? 0 : 2;
        }) == 0);
}

TEST_CASE("an outsider that was made is gone with the object, from inside of the domain too") {
  CHECK(InChild([] {
          // The parent of this process ends, so that there is none of the same user to aim at.
          const pid_t orphan = fork();
          if (orphan != 0) {
            int status = 0;
            waitpid(orphan, &status, 0);
            return WIFEXITED(status) ? WEXITSTATUS(status) : 200;
          }
          if (geteuid() == 0 && setresuid(61001, 61001, 61001) != 0) return 3;
          auto outsider = Outsider::Find();
          if (!outsider.ok() || kill(outsider->pid(), 0) != 0) return 4;
          const pid_t pid = outsider->pid();
          if (pid == getppid()) return geteuid() == 61001 ? 5 : 0;
          if (LandlockAbi() >= kLandlockScopeAbi &&
              !(SetNoNewPrivileges().ok() && EnterScope(LandlockAbi()).ok()))
            return kStageFailed;
          { const Outsider gone = *std::move(outsider); }
          return waitpid(pid, nullptr, WNOHANG) == -1 && errno == ECHILD ? 0 : 6;
        }) == 0);
}

}  // namespace agentmon
