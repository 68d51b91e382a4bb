#include "daemon/resolver/host_addresses.h"

#include <sched.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "tests/fake/fake_clock.h"

namespace agentmon {
namespace {

TEST_CASE("addresses of this host are known, also those that it gets later") {
  FakeClock clock;
  HostAddresses addresses(clock);
  CHECK(addresses.Has(*policy::ParseAddress("127.0.0.1")));
  CHECK_FALSE(addresses.Has(*policy::ParseAddress("192.0.2.1")));
  CHECK_FALSE(addresses.Has(*policy::ParseAddress("2001:db8::1")));
  if (geteuid() != 0) return;  // the rest needs a network of its own
  const pid_t child = fork();
  if (child == 0) {
    if (unshare(CLONE_NEWNET) != 0 || system("ip link set lo up && ip address add 203.0.113.7/32 dev lo && "
                                             "ip address add 2001:db8::7/128 dev lo") != 0)
      _exit(2);
    if (addresses.Has(*policy::ParseAddress("203.0.113.7"))) _exit(3);  // asked within the second
    clock.Advance(absl::Seconds(2));
    _exit(addresses.Has(*policy::ParseAddress("203.0.113.7")) &&
                  addresses.Has(*policy::ParseAddress("2001:db8::7")) &&
                  !addresses.Has(*policy::ParseAddress("203.0.113.8"))
              ? 0
              : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  CHECK(status == 0);
}

}  // namespace
}  // namespace agentmon
