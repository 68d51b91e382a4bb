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

TEST_CASE("descriptors that are to be kept may be given again, and must be open and inherited") {
  const auto options =
      Parse({"--socket", "s", "--token-fd", "99", "--keep-fd", "0", "--keep-fd", "7", "--", "x"});
  REQUIRE(options.ok());
  CHECK(options->keep_fds == std::vector<int>{0, 7});
  CHECK_FALSE(Parse({"--socket", "s", "--token-fd", "3", "--keep-fd", "x", "--", "x"}).ok());

  ShimOptions kept;
  kept.token_fd = 99;
  kept.keep_fds = {0};
  CHECK(CheckKeptDescriptors(kept).ok());
  kept.keep_fds = {0, 798};
  CHECK(std::string(CheckKeptDescriptors(kept).message()) ==
        "--keep-fd 798: no such descriptor was given to this command");
  kept.token_fd = 0;
  kept.keep_fds = {0};
  CHECK_FALSE(CheckKeptDescriptors(kept).ok());
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
