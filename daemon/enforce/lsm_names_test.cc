#include "daemon/enforce/lsm_names.h"

#include <catch2/catch.hpp>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "bpf/lsm_names.h"
#include "bpf/lsm_numbers.h"
#include "common/policy/evaluate.h"
#include "common/policy/testing/snapshots.h"
#include "daemon/enforce/lsm_compile.h"

namespace agentmon {
namespace {

using policy::Glob;

std::vector<Glob> Parsed(const std::string& text) {
  std::vector<Glob> globs;
  policy::GlobError error;
  REQUIRE(Glob::Parse(text, policy::GlobKind::kPath, globs, error));
  return globs;
}

void Run(const am_lsm_names& names, const std::string& text, uint64_t (&state)[AM_LSM_NAME_WORDS]) {
  std::copy(std::begin(names.start), std::end(names.start), state);
  for (const char byte : text) am_lsm_names_step(state, &names, static_cast<am_u8>(byte));
}

// What the programs do with bpf_loop.
bool Stops(const LsmPolicy& policy, const std::string& text, uint32_t asked) {
  uint64_t state[AM_LSM_NAME_WORDS];
  Run(*policy.names, text, state);
  am_lsm_judge judge;
  am_lsm_begin(&judge, asked, 0, 0);
  for (uint32_t i = 0; i < policy.names->patterns; ++i) {
    const am_lsm_pattern& pattern = policy.names->pattern[i];
    am_lsm_add(&judge, &pattern.match, am_lsm_names_match(state, &pattern));
  }
  for (uint32_t layer = 0; layer < policy.head.layers; ++layer) {
    const uint32_t answer = am_lsm_layer(&policy.head, &judge, layer);
    if (answer != AM_LSM_PASS) return (answer & ~AM_LSM_FINAL) == AM_LSM_DENY;
  }
  return false;
}

TEST_CASE("the automaton matches the names that the patterns match, and no others") {
  static constexpr const char* kParts[] = {"a", "b",  "/",  "*",    "**", "?",  "[ab]",  "[!a]", "/**/",
                                           ".", "/a", "b/", "/**/", "@",  "ab", "{a,b}", "/*/",  "x"};
  static constexpr const char* kBytes[] = {"a", "b", "/", ".", "@", "x", "ab", "/a", "\xc3\xbc", "b/"};
  std::mt19937_64 random(20261201);
  const auto pick = [&](const auto& list) { return list[random() % std::size(list)]; };
  size_t matched = 0, compared = 0;
  for (int round = 0; round < 300; ++round) {
    std::vector<Glob> globs;
    for (int n = 0; n < 40; ++n) {
      std::string text;
      for (size_t parts = 1 + random() % 7; parts > 0; --parts) absl::StrAppend(&text, pick(kParts));
      policy::GlobError error;
      std::vector<Glob> parsed;
      if (!Glob::Parse(text, policy::GlobKind::kPath, parsed, error)) continue;
      for (Glob& glob : parsed) {
        if (MakeLsmNames({{&glob, {}}}).ok()) globs.push_back(std::move(glob));
      }
    }
    std::vector<LsmNamePattern> patterns;
    for (const Glob& glob : globs) patterns.push_back({&glob, {}});
    const auto names = MakeLsmNames(patterns);
    REQUIRE(names.ok());
    for (int n = 0; n < 40; ++n) {
      std::string text;
      for (size_t parts = random() % 9; parts > 0; --parts) absl::StrAppend(&text, pick(kBytes));
      uint64_t state[AM_LSM_NAME_WORDS];
      Run(**names, text, state);
      for (size_t i = 0; i < globs.size(); ++i) {
        const bool matches = globs[i].Matches(text);
        CAPTURE(globs[i].ToString(), text);
        REQUIRE((am_lsm_names_match(state, &(*names)->pattern[i]) != 0) == matches);
        matched += matches;
        ++compared;
      }
    }
  }
  CHECK(matched > 1000);
  CHECK(compared > 100000);
}

TEST_CASE("a pattern may cross the words of the automaton") {
  const std::string long_name = "/" + std::string(200, 'a');
  const std::vector<Glob> globs = Parsed(long_name + "/**/b*");
  const auto names = MakeLsmNames({{&globs[0], {}}});
  REQUIRE(names.ok());
  for (const auto& [text, matches] : {std::pair<std::string, bool>{long_name + "/b", true},
                                      {long_name + "/x/y/bc", true},
                                      {long_name + "/x", false},
                                      {long_name + "a/b", false}}) {
    uint64_t state[AM_LSM_NAME_WORDS];
    Run(**names, text, state);
    CAPTURE(text);
    CHECK((am_lsm_names_match(state, (*names)->pattern) != 0) == matches);
  }
}

TEST_CASE("what does not fit is refused") {
  const std::vector<Glob> wide = Parsed("/[\xc3\xa4-\xc3\xbc]");
  CHECK(absl::IsResourceExhausted(MakeLsmNames({{&wide[0], {}}}).status()));
  const std::vector<Glob> plain = Parsed("/" + std::string(100, 'a'));
  CHECK(absl::IsResourceExhausted(
      MakeLsmNames(std::vector<LsmNamePattern>(42, LsmNamePattern{&plain[0], {}})).status()));
}

TEST_CASE("programs stop the sockets that the policy stops") {
  static constexpr const char* kPatterns[] = {
      "/run/**", "/run/a.sock",   "@abs-*",  "**",       "/run/*",         "@*", "**/b.sock", "/tmp/x-*/**",
      "*",       "/run/?/b.sock", "@abs/**", "/tmp/x-1", "/run/user/*/bus"};
  static constexpr const char* kNames[] = {"/run/a.sock", "/run/d/b.sock", "@abs-1",       "@other",
                                           "@abs/x/y",    "/tmp/x-1",      "/tmp/x-1/2/3", "/run/user/1/bus",
                                           "/other",      "@abs-1/2"};
  static constexpr const char* kDecisions[] = {"allow", "allow", "deny", "deny", "ask", "audit"};
  static constexpr const char* kOperations[] = {"connect", "sendto", "bind", "\"*\""};
  std::mt19937_64 random(20261202);
  const auto pick = [&](const auto& list) { return list[random() % std::size(list)]; };
  size_t stopped = 0;
  for (int round = 0; round < 300; ++round) {
    std::vector<policy::TestLayer> layers;
    for (const auto kind : {policy::LayerKind::kBase, policy::LayerKind::kUser}) {
      std::string text = absl::StrCat("version: 1\nname: p\n", random() % 8 == 0 ? "posture: warn\n" : "");
      if (random() % 2 == 0)
        absl::StrAppend(&text, "defaults: {unix_socket: ", random() % 2 == 0 ? "allow" : "deny", "}\n");
      absl::StrAppend(&text, "unix_socket_rules:\n");
      for (size_t n = 1 + random() % 4; n > 0; --n)
        absl::StrAppend(&text, "  - {name: r", n, ", paths: [\"", pick(kPatterns), "\", \"", pick(kPatterns),
                        "\"], operations: [", pick(kOperations), "], decision: ", pick(kDecisions), "}\n");
      layers.push_back({kind, text, "p.yaml"});
    }
    const auto snapshot = policy::MakeSnapshot(layers);
    const auto compiled = CompileLsm(*snapshot, {1, 2}, "");
    REQUIRE(compiled.ok());
    for (const char* name : kNames) {
      for (const auto& [operation, asked] :
           {std::pair<uint32_t, uint32_t>{policy::kUnixConnect, OP_UNIX_CONNECT},
            {policy::kUnixSendto, OP_UNIX_SENDTO}}) {
        const bool stops = policy::Evaluate(*snapshot, policy::UnixSubject(operation, name), {}).Stops();
        CAPTURE(layers[0].text, layers[1].text, name, operation);
        REQUIRE(Stops(*compiled, name, asked) == stops);
        stopped += stops;
      }
    }
  }
  CHECK(stopped > 500);
}

TEST_CASE("agentmon's own socket is reached, and that of the self-test is not") {
  const auto snapshot = policy::MakeBase("defaults: {unix_socket: allow}\n");
  const auto compiled = CompileLsm(*snapshot, {1, 2}, "");
  REQUIRE(compiled.ok());
  CHECK_FALSE(Stops(*compiled, "/run/agentmon/agentmond.sock", OP_UNIX_CONNECT));
  CHECK(Stops(*compiled, "/run/agentmon/canary/socket", OP_UNIX_CONNECT));
  CHECK_FALSE(Stops(*compiled, "/run/other", OP_UNIX_CONNECT));
}

}  // namespace
}  // namespace agentmon
