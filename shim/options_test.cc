#include "shim/options.h"

#include <vector>

#include <catch2/catch.hpp>

namespace agentmon {
namespace {

absl::StatusOr<ShimOptions> Parse(std::vector<const char*> words) {
  words.insert(words.begin(), "agentmon-shim");
  static std::vector<char*> argv;  // the answer points into it
  argv.clear();
  for (const char* word : words) argv.push_back(const_cast<char*>(word));
  argv.push_back(nullptr);
  return ParseShimOptions(static_cast<int>(words.size()), argv.data());
}

}  // namespace

TEST_CASE("the command is everything after the first --, options of its own included") {
  const auto options = Parse({"--socket", "/run/s", "--token-fd", "9", "--", "ls", "--", "--socket"});
  REQUIRE(options.ok());
  CHECK(options->socket == "/run/s");
  CHECK(options->token_fd == 9);
  CHECK(options->namespace_error.empty());
  CHECK(std::string(options->command[0]) == "ls");
  CHECK(std::string(options->command[1]) == "--");
  CHECK(std::string(options->command[2]) == "--socket");
  CHECK(options->command[3] == nullptr);
}

TEST_CASE("the reason of agentmon-ns is kept whole") {
  const auto options = Parse({"--ns-error=unshare: a=b", "--socket", "s", "--token-fd", "3", "--", "x"});
  REQUIRE(options.ok());
  CHECK(options->namespace_error == "unshare: a=b");
}

TEST_CASE("an incomplete or unknown command line is refused") {
  CHECK_FALSE(Parse({"--socket", "s", "--token-fd", "3", "--"}).ok());
  CHECK_FALSE(Parse({"--socket", "s", "--token-fd", "3"}).ok());
  CHECK_FALSE(Parse({"--token-fd", "3", "--", "x"}).ok());
  CHECK_FALSE(Parse({"--socket", "s", "--", "x"}).ok());
  CHECK_FALSE(Parse({"--socket", "s", "--token-fd", "x3", "--", "x"}).ok());
  CHECK_FALSE(Parse({"--socket", "s", "--token-fd", "3", "--nonsense", "--", "x"}).ok());
  CHECK_FALSE(Parse({"--socket"}).ok());
}

}  // namespace agentmon
