#include "daemon/session/session_cgroups.h"

#include <catch2/catch.hpp>

namespace agentmon {

TEST_CASE("a scope of a session is known by its name in a slice where only root makes units") {
  CHECK(SessionOfScope("/user.slice/user-1000.slice/agentmon-s1.scope") == "s1");
  CHECK(SessionOfScope("/user.slice/user-1000.slice/agentmon-s1.scope/below") == "s1");
  CHECK(SessionOfScope("/agentmon.slice/agentmon-sessions.slice/agentmon-s1.scope") == "s1");
  CHECK(SessionOfScope("/user.slice/user-1000.slice/session-3.scope").empty());
  CHECK(SessionOfScope("/user.slice/user-1000.slice").empty());
  // A user's own manager makes units of any name further down.
  CHECK(SessionOfScope("/user.slice/user-1000.slice/user@1000.service/agentmon-s1.scope").empty());
  CHECK(SessionOfScope("/system.slice/x.slice/agentmon-s1.scope").empty());
  CHECK(SessionOfScope("").empty());
}

TEST_CASE("a path in any instance's session is one of a session") {
  CHECK(IsSessionCgroupPath("/agentmon-main/s1"));
  CHECK(IsSessionCgroupPath("/agentmon-main/sessions/s1/below"));
  CHECK(IsSessionCgroupPath("/user.slice/user-1000.slice/agentmon-s1.scope"));
  CHECK_FALSE(IsSessionCgroupPath("/agentmon-main"));
  CHECK_FALSE(IsSessionCgroupPath("/user.slice/user-1000.slice/session-3.scope"));
  CHECK(ScopeName("s1") == "agentmon-s1.scope");
}

}  // namespace agentmon
