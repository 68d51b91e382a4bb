#include "daemon/app/service_watchdog.h"

#include <stdlib.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "absl/strings/str_cat.h"
#include "tests/fake/fake_task_runner.h"

namespace agentmon {
namespace {

struct Rig {
  FakeTaskRunner core;
  bool moves = true;
  int beats = 0;
  ServiceWatchdog::Deps deps{core, [this] { return moves; }, [this] { ++beats; }};
};

}  // namespace

TEST_CASE("two beats go out in each timeout") {
  Rig rig;
  const ServiceWatchdog watchdog(rig.deps, absl::Seconds(30));
  rig.core.Advance(absl::Seconds(14));
  CHECK(rig.beats == 0);
  rig.core.Advance(absl::Seconds(1));
  CHECK(rig.beats == 1);
  rig.core.Advance(absl::Seconds(15));
  CHECK(rig.beats == 2);
}

TEST_CASE("no beat goes out while nothing moves, and again once it does") {
  Rig rig;
  const ServiceWatchdog watchdog(rig.deps, absl::Seconds(30));
  rig.moves = false;
  rig.core.Advance(absl::Seconds(60));
  CHECK(rig.beats == 0);
  rig.moves = true;
  rig.core.Advance(absl::Seconds(15));
  CHECK(rig.beats == 1);
}

TEST_CASE("without a manager that asks for it there is no timer") {
  ::unsetenv("WATCHDOG_USEC");
  CHECK(ServiceWatchdog::AskedTimeout() == absl::ZeroDuration());
  Rig rig;
  const ServiceWatchdog watchdog(rig.deps, ServiceWatchdog::AskedTimeout());
  rig.core.Advance(absl::Hours(1));
  CHECK(rig.beats == 0);
}

TEST_CASE("the timeout is the one that the manager gives to this process") {
  ::setenv("WATCHDOG_USEC", "30000000", 1);
  ::setenv("WATCHDOG_PID", absl::StrCat(::getpid()).c_str(), 1);
  CHECK(ServiceWatchdog::AskedTimeout() == absl::Seconds(30));
  ::setenv("WATCHDOG_PID", "1", 1);
  CHECK(ServiceWatchdog::AskedTimeout() == absl::ZeroDuration());
  ::unsetenv("WATCHDOG_USEC");
  ::unsetenv("WATCHDOG_PID");
}

}  // namespace agentmon
