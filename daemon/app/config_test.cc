#include "daemon/app/config.h"

#include <catch2/catch.hpp>

namespace agentmon {

TEST_CASE("an empty configuration is the defaults") {
  const auto config = ParseConfig("", "x.yaml");
  REQUIRE(config.ok());
  CHECK(config->socket_path() == "/run/agentmon/agentmond.sock");
  CHECK(config->max_size_bytes == uint64_t{2} << 30);
}

TEST_CASE("every key is read") {
  const auto config = ParseConfig(
      "state_dir: /s\nruntime_dir: /r\nlog_level: debug\nadmin_group: adm\n"
      "retention: {max_age: 7d, max_size: 500M}\nlimits: {sessions_per_uid: 5}\n",
      "x.yaml");
  REQUIRE(config.ok());
  CHECK(config->state_dir == "/s");
  CHECK(config->socket_path() == "/r/agentmond.sock");
  CHECK(config->log_level == LogLevel::kDebug);
  CHECK(config->admin_group == "adm");
  CHECK(config->max_age == absl::Hours(24 * 7));
  CHECK(config->max_size_bytes == uint64_t{500} << 20);
  CHECK(config->sessions_per_uid == 5);
}

TEST_CASE("all errors are told at once, each with file and line") {
  const auto config =
      ParseConfig("stat_dir: /s\nlog_level: loud\nretention:\n  max_size: 3 cows\nsocket: x\n", "x.yaml");
  REQUIRE_FALSE(config.ok());
  const std::string text(config.status().message());
  CHECK(text.find("x.yaml:1: unknown key 'stat_dir'; known: ") != std::string::npos);
  CHECK(text.find("x.yaml:2: 'log_level': 'loud' is not one of") != std::string::npos);
  CHECK(text.find("x.yaml:4: 'retention.max_size': '3 cows' is not a size") != std::string::npos);
  CHECK(text.find("x.yaml:5: 'socket': 'x' is not an absolute path") != std::string::npos);
}

TEST_CASE("malformed YAML, a list and a repeated key are errors") {
  CHECK_FALSE(ParseConfig("{", "x").ok());
  CHECK(ParseConfig("- a\n", "x").status().message() == "x:1: must be a mapping of keys");
  CHECK(ParseConfig("socket: /a\nsocket: /b\n", "x").status().message() == "x:2: 'socket' is given twice");
}

TEST_CASE("nesting without end is one line that says where, and costs no stack") {
  std::string blocks;
  for (int depth = 0; depth < 1300; ++depth) blocks += std::string(static_cast<size_t>(depth), ' ') + "a:\n";
  std::string maps, lists;
  for (int depth = 0; depth < 100'000; ++depth) maps += "{a: ";
  for (int depth = 0; depth < 100'000; ++depth) lists += "- ";
  for (const std::string& text : {std::string(100'000, '['), blocks, maps, lists}) {
    const absl::Status status = ParseConfig("log_level: info\nlimits:\n " + text, "x.yaml").status();
    REQUIRE(status.code() == absl::StatusCode::kInvalidArgument);
    const std::string message(status.message());
    INFO(message.substr(0, 200));
    CHECK(message.find("x.yaml:") == 0);
    CHECK(message.find("nested deeper than") != std::string::npos);
    CHECK(message.size() < 100);
    CHECK(message.find('\n') == std::string::npos);
  }
}

}  // namespace agentmon
