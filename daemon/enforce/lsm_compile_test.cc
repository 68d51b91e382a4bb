#include "daemon/enforce/lsm_compile.h"

#include <signal.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "bpf/lsm_judge.h"
#include "bpf/lsm_numbers.h"
#include "common/policy/evaluate.h"
#include "common/policy/kernel_view.h"
#include "common/policy/shipped.h"
#include "common/policy/testing/snapshots.h"

namespace agentmon {
namespace {

using policy::FileSubject;

constexpr LsmKey kKey = {0x0706050403020100, 0x0f0e0d0c0b0a0908};

// What the programs do with bpf_loop around the same steps of bpf/lsm_judge.h.
am_lsm_verdict JudgeAsPrograms(const LsmPolicy& policy, const std::string& path, uint32_t asked,
                               uint32_t implied, am_lsm_judge* judge) {
  const std::vector<uint64_t> segments = LsmSegments(kKey, path);
  const std::string name = path.substr(path.rfind('/') + 1);
  const auto below = [&](am_lsm_kind kind, uint64_t hash) {
    const auto it = policy.nodes.find({kind, hash});
    if (it == policy.nodes.end()) return;
    for (uint32_t i = 0; i < AM_LSM_MATCHES; ++i) am_lsm_add_below(judge, &it->second, i);
  };
  am_lsm_begin(judge, asked, implied, static_cast<uint32_t>(segments.size()));
  for (uint32_t index = 0; index <= segments.size(); ++index) {
    if (index > 0) {
      below(AM_LSM_SEGMENT, segments[index - 1]);
      if (index == segments.size()) below(AM_LSM_NAME, segments[index - 1]);
      judge->hash = am_lsm_mix(judge->hash, segments[index - 1]);
    }
    const auto it = policy.nodes.find({AM_LSM_NODE, judge->hash});
    if (it == policy.nodes.end()) continue;
    for (uint32_t i = 0; i < AM_LSM_MATCHES; ++i) am_lsm_add_node(judge, &it->second, i, index);
    if (index < segments.size()) judge->roots |= 1ull << it->second.root;
  }
  for (const uint8_t length : policy.head.suffix) {
    if (length != 0 && length <= name.size())
      below(AM_LSM_SUFFIX, LsmHash(kKey, name.substr(name.size() - length)));
  }
  for (const uint8_t length : policy.head.prefix) {
    if (length != 0 && length <= name.size()) below(AM_LSM_PREFIX, LsmHash(kKey, name.substr(0, length)));
  }
  for (uint32_t layer = 0; layer < policy.head.layers; ++layer) {
    const uint32_t answer = am_lsm_layer(&policy.head, judge, layer);
    if (answer != AM_LSM_PASS) return static_cast<am_lsm_verdict>(answer & ~AM_LSM_FINAL);
  }
  return AM_LSM_PASS;
}

bool Denies(const LsmPolicy& policy, const std::string& path, uint32_t asked, uint32_t implied = 0) {
  am_lsm_judge judge;
  return JudgeAsPrograms(policy, path, asked, implied, &judge) == AM_LSM_DENY;
}

LsmPolicy Compiled(const policy::Snapshot& snapshot, const std::string& spare = "") {
  auto compiled = CompileLsm(snapshot, kKey, spare);
  REQUIRE(compiled.ok());
  return *std::move(compiled);
}

// Whether one layer must ask user space about this operation.
bool MustAsk(const policy::KernelView& view, const std::string& path, uint32_t bit) {
  for (const policy::KernelLayer& layer : view.layers) {
    const auto fallback =
        bit & policy::kReadOps ? policy::DefaultFor::kFileRead : policy::DefaultFor::kFileWrite;
    if (!policy::KernelJudgePath(layer, layer.files, path, bit, fallback)) return true;
  }
  return false;
}

TEST_CASE("entries of the kernel stop what the policy stops, and nothing else") {
  static constexpr const char* kPatterns[] = {
      "/srv/**",    "/srv/a",       "/srv/a/**",  "**/.env",      "**/*.pem",        "/srv/*/b",
      "/home/u/**", "**",           "/srv/**/b",  "**/secret/**", "**/.env.*",       "/home/u/?s/**",
      "/srv/a*",    "/srv/a/x.pem", "/srv/**/k*", "/srv/**/d/**", "/home/u/**/*.key"};
  static constexpr const char* kPaths[] = {"/",
                                           "/srv",
                                           "/srv/a",
                                           "/srv/a/b",
                                           "/srv/ab",
                                           "/srv/x/y/b",
                                           "/home/u",
                                           "/home/u/ws/.env",
                                           "/a/.env.local",
                                           "/srv/a/x.pem",
                                           "/x/secret/deep/z",
                                           "/srv/secret/.env",
                                           "/srv/q/kk",
                                           "/srv/q/d/e",
                                           "/home/u/a.key",
                                           "/srv/k"};
  static constexpr const char* kDecisions[] = {"allow", "allow", "deny",  "deny",
                                               "ask",   "audit", nullptr, nullptr};
  static constexpr const char* kOperations[] = {"read",   "open",  "write", "create", "delete",
                                                "rename", "\"*\"", "chmod", "mkdir"};
  // As the programs ask: what an act is, and what comes along with it.
  static constexpr std::pair<uint32_t, uint32_t> kActs[] = {
      {policy::kOpen | policy::kRead, 0},
      {policy::kWrite, 0},
      {policy::kOpen | policy::kRead | policy::kWrite, 0},
      {policy::kCreate, policy::kWrite},
      {policy::kDelete, policy::kWrite},
      {policy::kChmod, policy::kWrite},
      {policy::kMkdir, policy::kWrite | policy::kCreate},
      {policy::kRename, policy::kOpen | policy::kRead | policy::kWrite}};
  std::mt19937_64 random(20261130);
  const auto decision = [&](int round) {
    // Both in one policy: of a tie between operations the engine takes the first, the kernel the stricter
    // one.
    const char* word = kDecisions[random() % std::size(kDecisions)];
    return word != nullptr ? word : round % 2 == 0 ? "redirect" : "soft_delete";
  };
  const auto pick = [&](const auto& list) { return list[random() % std::size(list)]; };
  size_t compared = 0, asked = 0;
  for (int round = 0; round < 400; ++round) {
    std::vector<policy::TestLayer> layers;
    for (const auto kind : {policy::LayerKind::kBase, policy::LayerKind::kUser}) {
      std::string text = absl::StrCat("version: 1\nname: p\n", random() % 8 == 0 ? "posture: warn\n" : "");
      if (kind == policy::LayerKind::kBase && random() % 2 == 0)
        absl::StrAppend(&text, "defaults: {file_read: ", random() % 4 == 0 ? "deny" : "allow",
                        ", file_write: ", random() % 2 == 0 ? "allow" : "deny", "}\n");
      absl::StrAppend(&text, "file_rules:\n");
      for (size_t n = 1 + random() % 5; n > 0; --n)
        absl::StrAppend(&text, "  - {name: r", n, ", paths: [\"", pick(kPatterns), "\", \"", pick(kPatterns),
                        "\"], operations: [", pick(kOperations), ", ", pick(kOperations),
                        "], decision: ", decision(round), "}\n");
      layers.push_back({kind, text, "p.yaml"});
    }
    policy::CompileOptions options = policy::TestOptions();
    options.builtin = policy::BuiltinPaths();
    const auto snapshot = policy::MakeSnapshot(layers, options);
    const policy::KernelView view = policy::MakeKernelView(*snapshot);
    const LsmPolicy compiled = Compiled(*snapshot);
    for (const char* path : kPaths) {
      for (const auto& [act, implied] : kActs) {
        const bool stops = policy::Evaluate(*snapshot, FileSubject(act, path), {}).Stops();
        const bool denies = Denies(compiled, path, act, implied);
        bool must_ask = false;
        for (uint32_t left = act | implied; left != 0; left &= left - 1)
          must_ask |= MustAsk(view, path, left & -left);
        ++(must_ask ? asked : compared);
        CAPTURE(layers[0].text, layers[1].text, path, act);
        if (!must_ask) REQUIRE(denies == stops);
        if (denies) REQUIRE(stops);
      }
    }
  }
  CHECK(compared > asked);
}

TEST_CASE("the rule that stops an act is named by layer and rank") {
  const auto snapshot = policy::MakeBase(
      "defaults: {file_write: allow}\n"
      "file_rules:\n  - {name: a, paths: [/srv/a], decision: allow}\n"
      "  - {name: b, paths: [\"/srv/**\"], operations: [read], decision: deny}\n");
  const LsmPolicy compiled = Compiled(*snapshot);
  am_lsm_judge judge;
  REQUIRE(JudgeAsPrograms(compiled, "/srv/x", policy::kRead, 0, &judge) == AM_LSM_DENY);
  CHECK(snapshot->layers()[judge.layer].rule(judge.rank - 1).name == "b");
  CHECK(JudgeAsPrograms(compiled, "/srv/a", policy::kRead, 0, &judge) == AM_LSM_PASS);
  CHECK(JudgeAsPrograms(compiled, "/srv/x", policy::kWrite, 0, &judge) == AM_LSM_PASS);
}

TEST_CASE("agentmon's own files are denied, and the spare one is left to who comes after") {
  const auto snapshot = policy::MakeBase("defaults: {file_write: allow}\n");
  const LsmPolicy compiled = Compiled(*snapshot, "/run/agentmon/canary/file");
  CHECK(Denies(compiled, "/run/agentmon/canary/lsm", policy::kRead));
  CHECK(Denies(compiled, "/var/lib/agentmon/agentmon.db", policy::kWrite));
  CHECK_FALSE(Denies(compiled, "/run/agentmon/canary/file", policy::kRead));
  CHECK_FALSE(Denies(compiled, "/run/other", policy::kRead));
}

TEST_CASE("a directory above a protected place does not move") {
  const auto snapshot = policy::MakeBase(
      "defaults: {file_write: allow}\n"
      "file_rules:\n  - {name: a, paths: [/srv/a/b], operations: [write], decision: deny}\n");
  const LsmPolicy compiled = Compiled(*snapshot);
  constexpr uint32_t kBelow = 1u << 17;
  CHECK(Denies(compiled, "/srv/a", policy::kRename, kBelow));
  CHECK(Denies(compiled, "/srv", policy::kRename, kBelow));
  CHECK_FALSE(Denies(compiled, "/srv/a", policy::kRename));
  CHECK_FALSE(Denies(compiled, "/srv/c", policy::kRename, kBelow));
}

TEST_CASE("signals are stopped by their number and by who gets them") {
  const auto snapshot = policy::MakeBase(
      "defaults: {signal: allow}\n"
      "signal_rules:\n  - {name: a, signals: [USR1], target: {type: parent}, decision: allow}\n"
      "  - {name: b, signals: [TERM, USR1], target: {type: external}, decision: deny}\n"
      "  - {name: c, signals: [HUP], target: {type: system}, decision: deny}\n");
  const am_lsm_policy head = Compiled(*snapshot).head;
  const auto stops = [&](uint32_t who, int number) { return (head.signals[who] >> (number - 1) & 1) != 0; };
  CHECK(stops(0, SIGTERM));
  CHECK(stops(AM_LSM_SAME_USER | AM_LSM_PARENT, SIGTERM));
  CHECK(stops(AM_LSM_SAME_USER, SIGUSR1));
  CHECK_FALSE(stops(AM_LSM_SAME_USER | AM_LSM_PARENT, SIGUSR1));
  CHECK(stops(AM_LSM_SYSTEM, SIGHUP));
  CHECK_FALSE(stops(0, SIGHUP));
  CHECK_FALSE(stops(0, SIGKILL));
}

// What the kernel is asked when a program is started, and mapped.
uint32_t ExecAct(const std::string& exe, const std::string& asked) {
  const auto name = [](const std::string& path) { return path.substr(path.rfind('/') + 1); };
  const bool capitals = std::any_of(exe.begin(), exe.end(), [](char c) { return c >= 'A' && c <= 'Z'; });
  return capitals || (!asked.empty() && name(asked) != name(exe)) ? OP_EXEC_OTHER : OP_EXEC;
}

TEST_CASE(
    "a program that the kernel stops is one that the policy stops, by whatever name and with any arguments") {
  static constexpr const char* kCommands[] = {
      "git",       "sh",          "\"mk*\"",          "/usr/bin/git",   "\"/tmp/**\"",
      "/opt/x/sh", "\"**/tool\"", "\"/opt/**/mkfs\"", "\"/usr/*/git\"", "\"/srv/t*\""};
  static constexpr const char* kExes[] = {"/usr/bin/git", "/usr/bin/sh", "/tmp/git",
                                          "/tmp/a/tool",  "/opt/x/sh",   "/opt/x/mkfs",
                                          "/usr/bin/GIT", "/srv/tool",   "/usr/bin/git2"};
  static constexpr const char* kAsked[] = {
      "",          "/usr/bin/git",  "/usr/bin/sh",   "/tmp/git",
      "/opt/x/sh", "/usr/bin/tool", "/usr/bin/mkfs", "/usr/local/bin/git2"};
  static constexpr const char* kDecisions[] = {"allow", "deny", "deny", "ask", "audit", "redirect"};
  std::mt19937_64 random(20261201);
  const auto pick = [&](const auto& list) { return list[random() % std::size(list)]; };
  size_t denied = 0;
  for (int round = 0; round < 600; ++round) {
    std::string text =
        absl::StrCat("defaults: {command: ", random() % 2 == 0 ? "allow" : "deny", "}\ncommand_rules:\n");
    for (size_t n = 1 + random() % 4; n > 0; --n) {
      const std::string commands = absl::StrCat("commands: [", pick(kCommands), ", ", pick(kCommands), "], ");
      absl::StrAppend(&text, "  - {name: r", n, ", ", random() % 8 == 0 ? "" : commands,
                      random() % 3 == 0 ? "args_patterns: [x], " : "",
                      random() % 3 == 0 ? "anywhere: true, " : "", "decision: ", pick(kDecisions), "}\n");
    }
    const auto snapshot = policy::MakeBase(text);
    const LsmPolicy compiled = Compiled(*snapshot);
    for (const char* exe : kExes) {
      for (const char* asked : kAsked) {
        // The name of another one leads to a program by a link of root's.
        am_lsm_judge judge;
        if (JudgeAsPrograms(compiled, exe, ExecAct(exe, asked), 0, &judge) != AM_LSM_DENY) continue;
        ++denied;
        for (const bool argument : {false, true}) {
          std::vector<absl::string_view> argv{asked[0] != 0 ? asked : exe};
          if (argument) argv.emplace_back("x");
          policy::Subject subject = policy::ExecSubject(exe, argv);
          subject.file = asked;
          CAPTURE(text, exe, asked, argument);
          REQUIRE(policy::Evaluate(*snapshot, subject, {}).Stops());
        }
      }
    }
  }
  CHECK(denied > 1000);
}

TEST_CASE("programs that a rule names are stopped under every name, and as mappings") {
  const auto snapshot = policy::MakeBase(
      "defaults: {command: allow}\n"
      "command_rules:\n  - {name: a, commands: [\"/srv/tools/**\", wget], decision: deny}\n"
      "  - {name: b, commands: [git], decision: allow}\n"
      "  - {name: c, commands: [/srv/own, nc], decision: deny}\n"
      "  - {name: d, commands: [\"/usr/bin/*\"], decision: allow}\n"
      "  - {name: e, commands: [/srv/late], decision: deny}\n");
  const LsmPolicy compiled = Compiled(*snapshot);
  for (const uint32_t act : {OP_EXEC, OP_EXEC_OTHER, OP_MAP}) {
    CHECK(Denies(compiled, "/srv/tools/x", act));
    CHECK(Denies(compiled, "/usr/bin/wget", act));
    CHECK_FALSE(Denies(compiled, "/srv/wget", act));
    CHECK_FALSE(Denies(compiled, "/usr/lib/libc.so", act));
    CHECK_FALSE(Denies(compiled, "/srv/late", act));
  }
  // Behind a rule that allows by name: where no other name was asked for.
  CHECK(Denies(compiled, "/srv/own", OP_EXEC));
  CHECK(Denies(compiled, "/usr/bin/nc", OP_EXEC));
  CHECK_FALSE(Denies(compiled, "/srv/own", OP_EXEC_OTHER));
  CHECK_FALSE(Denies(compiled, "/srv/own", OP_MAP));
  am_lsm_judge judge;
  const uint32_t mapping = OP_OPEN | OP_READ | OP_MAP;
  REQUIRE(JudgeAsPrograms(compiled, "/srv/tools/x", mapping, 0, &judge) == AM_LSM_DENY);
  CHECK(judge.operation == OP_MAP);
}

TEST_CASE("a default on commands stops no program in the kernel") {
  const LsmPolicy compiled = Compiled(*policy::MakeBase("defaults: {command: deny, file_write: deny}\n"));
  for (const uint32_t act : {OP_EXEC, OP_EXEC_OTHER, OP_MAP})
    CHECK_FALSE(Denies(compiled, "/usr/bin/git", act));
}

TEST_CASE("the shipped policies fit") {
  for (const policy::ShippedPolicy& shipped : policy::ShippedPolicies()) {
    CAPTURE(std::string(shipped.name));
    const auto snapshot = policy::MakeSnapshot(
        std::vector<policy::TestLayer>{{policy::LayerKind::kBase, std::string(shipped.text), "p.yaml"}});
    const auto compiled = CompileLsm(*snapshot, kKey, "/run/agentmon/canary/file");
    CAPTURE(compiled.status().ToString());
    CHECK(compiled.ok());
  }
}

TEST_CASE("a policy that does not fit is refused") {
  std::string rules = "file_rules:\n";
  for (int i = 0; i < 9; ++i)
    absl::StrAppend(&rules, "  - {name: r", i, ", paths: [\"/d", i, "/**/.env\"], decision: deny}\n");
  const auto compiled = CompileLsm(*policy::MakeBase(rules), kKey, "");
  REQUIRE_FALSE(compiled.ok());
  CHECK(absl::IsResourceExhausted(compiled.status()));
}

}  // namespace
}  // namespace agentmon
