#include "shim/stage/environment.h"

#include <catch2/catch.hpp>

namespace agentmon {
namespace {

bool Keeps(const std::vector<std::string>& lines, absl::string_view name) {
  const auto filter = EnvironmentFilter::Parse(lines);
  REQUIRE(filter.ok());
  return filter->Keeps(name);
}

std::vector<std::string> Made(const std::vector<std::string>& inherited,
                              const std::vector<std::string>& lines, const Variables& set) {
  const auto filter = EnvironmentFilter::Parse(lines);
  REQUIRE(filter.ok());
  const auto made = MakeEnvironment(inherited, *filter, set);
  REQUIRE(made.ok());
  return *made;
}

}  // namespace

TEST_CASE("the first pattern that matches decides, and what matches none stays") {
  CHECK_FALSE(Keeps({"LD_*"}, "LD_PRELOAD"));
  CHECK(Keeps({"LD_*"}, "OLD_X"));
  CHECK(Keeps({"!LD_BIND_NOW", "LD_*"}, "LD_BIND_NOW"));
  CHECK_FALSE(Keeps({"LD_*", "!LD_BIND_NOW"}, "LD_BIND_NOW"));
  CHECK(Keeps({"!PATH", "*"}, "PATH"));
  CHECK_FALSE(Keeps({"!PATH", "*"}, "HOME"));
  CHECK_FALSE(Keeps({"{A,B}_TOKEN"}, "B_TOKEN"));
  CHECK_FALSE(Keeps({"\\!X"}, "!X"));
  CHECK(Keeps({}, "ANYTHING"));
}

TEST_CASE("a variable stays when all filters keep it") {
  const std::vector<std::string> two = {"!A*", "*", "", "!*B", "*"};
  CHECK(Keeps(two, "AB"));
  CHECK_FALSE(Keeps(two, "A"));
  CHECK_FALSE(Keeps(two, "B"));
}

TEST_CASE("a broken pattern or bound is an error that names it") {
  const auto broken = EnvironmentFilter::Parse({"[a"});
  REQUIRE_FALSE(broken.ok());
  CHECK(std::string(broken.status().message()).find("[a") != std::string::npos);
  CHECK_FALSE(EnvironmentFilter::Parse({"=max_keys=many"}).ok());
}

TEST_CASE("set variables replace inherited ones, the last of a name counts") {
  const std::vector<std::string> made = Made({"A=1", "B=2", "AGENTMON_SESSION=x", "E="}, {"B"},
                                             {{"A", "9"}, {"AGENTMON_SESSION", "y"}, {"A", "3"}});
  CHECK(made == std::vector<std::string>{"E=", "AGENTMON_SESSION=y", "A=3"});
  CHECK(Made({"B=2"}, {"B"}, {{"B", "set"}}) == std::vector<std::string>{"B=set"});
}

TEST_CASE("more than the policy allows is an error with both numbers") {
  const auto keys = EnvironmentFilter::Parse({"=max_keys=1"});
  CHECK(MakeEnvironment({"A=1"}, *keys, {}).ok());
  const auto many = MakeEnvironment({"A=1", "B=2"}, *keys, {});
  REQUIRE_FALSE(many.ok());
  CHECK(std::string(many.status().message()) ==
        "the environment has 2 variables, and the policy allows 1 (env_policy.max_keys): unset some of it");
  const auto bytes = EnvironmentFilter::Parse({"X", "=max_bytes=4"});
  CHECK(MakeEnvironment({"A=1", "X=long"}, *bytes, {}).ok());
  CHECK_FALSE(MakeEnvironment({"A=12"}, *bytes, {}).ok());
}

}  // namespace agentmon
