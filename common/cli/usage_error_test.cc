#include "common/cli/usage_error.h"

#include <catch2/catch.hpp>

#include "common/cli/value_checks.h"

namespace agentmon {
namespace {

// What a program without verbs says to these arguments.
std::string Said(std::vector<std::string> arguments) {
  CLI::App app("", "tool");
  std::string file, level;
  double seconds = 0;
  unsigned number = 0;
  app.add_option("--state-dir", file)->type_name("DIR");
  OneOf(app.add_option("--log-level", level), "error|warning");
  Seconds(app.add_option("--wait", seconds)->type_name("SECONDS"), 0.5, 60);
  WholeNumber(app.add_option("--count,-n", number)->type_name("N"), 1, 9);
  std::reverse(arguments.begin(), arguments.end());
  try {
    app.parse(arguments);
  } catch (const CLI::ParseError& error) {
    return UsageErrorText(app, error);
  }
  return "";
}

}  // namespace

TEST_CASE("a wrong command line is told in the same words for a program without verbs") {
  const std::string tail = " ('tool --help' explains)";
  CHECK(Said({"--state-dir", "/x", "--wait", "0.5", "-n", "9"}).empty());
  CHECK(Said({"--bogus"}) == "unknown option '--bogus'" + tail);
  CHECK(Said({"--stat-dir", "x"}) == "unknown option '--stat-dir', did you mean '--state-dir'?" + tail);
  CHECK(Said({"--state"}) == "unknown option '--state', did you mean '--state-dir'?" + tail);
  CHECK(Said({"--state-dir"}) == "--state-dir needs a value, as in 'tool --state-dir DIR'" + tail);
  CHECK(Said({"start"}) == "unexpected argument 'start'" + tail);
  CHECK(Said({"--log-level", "warn"}) ==
        "--log-level: 'warn' is none of error|warning, did you mean 'warning'?" + tail);
  CHECK(Said({"--wait", "inf"}) == "--wait: 'inf' is no number of seconds from 0.5 to 60" + tail);
  CHECK(Said({"-n", "10"}) == "--count: '10' is no whole number from 1 to 9" + tail);
}

}  // namespace agentmon
