#include "daemon/app/config.h"

#include <stdlib.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "daemon/app/config_keys.h"

namespace agentmon {

namespace {

// "retention.max_age" and 30d as YAML.
std::string AsYaml(const ConfigKey& key) {
  return absl::StrCat(absl::StrReplaceAll(key.name, {{".", ":\n  "}}), ": ", key.default_value, "\n");
}

// The keys that the parser knows, as it tells them to whoever gives it a wrong one.
void AddKnown(const std::string& yaml, const std::string& prefix, std::set<std::string>* names) {
  const std::string said(ParseConfig(yaml, "x").status().message());
  const std::vector<std::string> parts = absl::StrSplit(said, "known: ");
  REQUIRE(parts.size() == 2);
  for (const std::string& name : absl::StrSplit(parts[1], ", ").operator std::vector<std::string>()) {
    const std::string below = absl::StrCat(name, ": {no_such_key: 1}");
    if (prefix.empty() && absl::StrContains(ParseConfig(below, "x").status().message(), "; known: ")) {
      AddKnown(below, name + ".", names);
    } else {
      names->insert(name);
    }
  }
}

}  // namespace

TEST_CASE("the manual's keys are the parser's, and their defaults are the defaults") {
  std::set<std::string> known, listed;
  AddKnown("no_such_key: 1", "", &known);
  for (const ConfigKey& key : ConfigKeys()) {
    listed.insert(key.name);
    CAPTURE(key.name);
    if (key.default_value.empty()) continue;
    const auto config = ParseConfig(AsYaml(key), "x.yaml");
    REQUIRE(config.ok());
    const Config standard;
    CHECK(config->state_dir == standard.state_dir);
    CHECK(config->socket_path() == standard.socket_path());
    CHECK(config->log_level == standard.log_level);
    CHECK(config->max_age == standard.max_age);
    CHECK(config->max_size_bytes == standard.max_size_bytes);
    CHECK(config->sessions_per_uid == standard.sessions_per_uid);
    CHECK(config->refuse_missing_limits);
  }
  CHECK(listed == known);
}

TEST_CASE("an empty configuration is the defaults") {
  const auto config = ParseConfig("", "x.yaml");
  REQUIRE(config.ok());
  CHECK(config->socket_path() == "/run/agentmon/agentmond.sock");
  CHECK(config->max_size_bytes == uint64_t{2} << 30);
}

TEST_CASE("every key is read") {
  const auto config = ParseConfig(
      "state_dir: /s\nruntime_dir: /r\nlog_level: debug\nadmin_group: adm\n"
      "retention: {max_age: 7d, max_size: 500M}\nlimits: {sessions_per_uid: 5, on_unavailable: warn}\n"
      "resolver: {servers: '127.0.0.5:5353,[::1]:53'}\n",
      "x.yaml");
  REQUIRE(config.ok());
  CHECK(config->state_dir == "/s");
  CHECK(config->socket_path() == "/r/agentmond.sock");
  CHECK(config->log_level == LogLevel::kDebug);
  CHECK(config->admin_group == "adm");
  CHECK(config->max_age == absl::Hours(24 * 7));
  CHECK(config->max_size_bytes == uint64_t{500} << 20);
  CHECK(config->sessions_per_uid == 5);
  CHECK_FALSE(config->refuse_missing_limits);
  CHECK(config->dns_servers == "127.0.0.5:5353,[::1]:53");
}

TEST_CASE("DNS servers are addresses: a name would have to be asked of somebody first") {
  CHECK(ParseConfig("resolver: {servers: dns.example}\n", "x.yaml").status().message() ==
        "x.yaml:1: 'resolver.servers': 'dns.example' is not a list of addresses such as "
        "192.0.2.1,[2001:db8::1]:5353");
  CHECK_FALSE(ParseConfig("resolver: {servers: ''}\n", "x.yaml").ok());
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

TEST_CASE("a user's own file has what is the user's to say") {
  char path[] = "/tmp/config-test-XXXXXX";
  const int fd = mkstemp(path);
  REQUIRE(fd >= 0);
  close(fd);
  const auto load = [&](const char* text) {
    std::ofstream(path) << text;
    Config system;
    system.policies.floor_dir = "/system/floor";
    return LoadUserConfig(path, system);
  };
  const auto own = load("default_policy: observe\n");
  REQUIRE(own.ok());
  CHECK(own->policies.default_policy == "observe");
  CHECK(own->policies.floor_dir == "/system/floor");
  for (const char* text : {"floor_dir: /x\n", "admin_group: adm\n", "client: {fallback: user}\n"}) {
    CAPTURE(text);
    CHECK(absl::StrContains(load(text).status().message(), "is for /etc/agentmon/agentmond.yaml only"));
  }
  unlink(path);
}

TEST_CASE("who may use a daemon of one's own is one of two words") {
  CHECK(ParseConfig("client: {fallback: none}", "c").ok());
  CHECK(ParseConfig("client: {fallback: user}", "c").ok());
  CHECK_FALSE(ParseConfig("client: {fallback: system}", "c").ok());
  CHECK_FALSE(ParseConfig("client: user", "c").ok());
}

}  // namespace agentmon
