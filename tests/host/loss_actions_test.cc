// Sessions without a daemon: stopped where they are, and ended when none comes.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "daemon/holder/loss_actions.h"
#include "tests/host/kernel_fixture.h"

namespace agentmon {
namespace {

constexpr int64_t kNow_ns = 5'000'000'000;

Cgroup Again(const TestCgroup& cgroup) { return *Cgroup::Open((*cgroup).path()); }

// A process that sits in the cgroup.
class Sleeper {
 public:
  explicit Sleeper(const Cgroup& cgroup) : pid_(fork()) {
    if (pid_ == 0) {
      for (;;) pause();
    }
    REQUIRE(cgroup.AddProcess(pid_).ok());
  }
  ~Sleeper() {
    kill(pid_, SIGKILL);
    if (!ended_) waitpid(pid_, nullptr, 0);
  }
  bool Killed() {
    int status = 0;
    const absl::Time deadline = absl::Now() + absl::Seconds(10);
    while (!ended_ && absl::Now() < deadline) {
      ended_ = waitpid(pid_, &status, WNOHANG) == pid_;
      if (!ended_) poll(nullptr, 0, 1);
    }
    return ended_ && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
  }
  bool Alive() { return !ended_ && waitpid(pid_, nullptr, WNOHANG) == 0; }

 private:
  pid_t pid_;
  bool ended_ = false;
};

TEST_CASE("all are frozen, and after the wait those are killed that should be") {
  TestCgroup to_freeze, to_kill, untold;
  Sleeper frozen(*to_freeze), killed(*to_kill), other(*untold);
  LossActions losses;
  losses.Set(Again(to_freeze), LossAction::kFreeze);
  losses.Set(Again(to_kill), LossAction::kKill);
  losses.Set(Again(untold), LossAction::kKill);
  losses.Set(Again(untold), LossAction::kNone);
  CHECK(losses.next_ns() == 0);
  losses.OnLoss(kNow_ns);
  CHECK(*(*to_freeze).Frozen());
  CHECK(*(*to_kill).Frozen());
  CHECK_FALSE(*(*untold).Frozen());
  CHECK(losses.next_ns() == kNow_ns + LossActions::kKillWait_ns);
  losses.Act();
  CHECK(killed.Killed());
  CHECK(frozen.Alive());
  CHECK(other.Alive());
  CHECK(losses.empty());
  CHECK(losses.next_ns() == 0);
}

TEST_CASE("a daemon that comes in time stops the killing, and a session that ended is left out") {
  TestCgroup to_kill, ended;
  Sleeper process(*to_kill), left(*ended);
  LossActions losses;
  losses.Set(Again(to_kill), LossAction::kKill);
  losses.Set(Again(ended), LossAction::kKill);
  losses.Remove((*ended).id());
  losses.OnLoss(kNow_ns);
  losses.OnDaemon();
  CHECK(losses.next_ns() == 0);
  CHECK_FALSE(losses.empty());
  CHECK(process.Alive());
  CHECK_FALSE(*(*ended).Frozen());
}

}  // namespace
}  // namespace agentmon
