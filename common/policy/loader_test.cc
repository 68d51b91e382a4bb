#include "common/policy/loader.h"

#include <sys/stat.h>

#include <catch2/catch.hpp>

#include <cstdlib>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "common/policy/testing/snapshots.h"

namespace agentmon::policy {
namespace {

constexpr char kHeader[] = "version: 1\nname: t\n";

std::string Of(absl::string_view rules) { return Complaints(absl::StrCat(kHeader, rules)); }

}  // namespace

TEST_CASE("all mistakes are reported at once, each with line, column, text and suggestion") {
  const std::string all = Complaints(R"(version: 1
name: t
file_ruls: []
file_rules:
  - name: a
    paths: ["ws/x", "/a/[b", "${}"]
    operations: [raed]
    decison: deny
  - name: b
    paths: ["/x"]
    decision: perhaps
network_rules:
  - {cidrs: [10.0.0.1/8], ports: [0, "9-3"], decision: allow}
command_rules:
  - {commands: [rm], args_patterns: ["*-rf*"], decision: deny}
)");
  INFO(all);
  const auto has = [&](const char* line) { return all.find(line) != std::string::npos; };
  CHECK(has("p.yaml:3:1: error: unknown key: \"file_ruls\" (did you mean \"file_rules\"?)"));
  CHECK(
      has("p.yaml:6:13: error: a relative path: rules need absolute ones; **/NAME means everywhere: \"ws/x\" "
          "(${WORKSPACE}/ws/x)"));
  CHECK(has("p.yaml:6:24: error: [ without ]: \"/a/[b\""));
  CHECK(has("p.yaml:6:32: error: not a variable's name"));
  CHECK(has("p.yaml:7:18: error: unknown operation: \"raed\" (did you mean \"read\"?)"));
  CHECK(has("p.yaml:8:5: error: unknown key: \"decison\" (did you mean \"decision\"?)"));
  CHECK(has("p.yaml:5:5: error: the rule has no decision"));
  CHECK(has("p.yaml:11:15: error: unknown decision: \"perhaps\""));
  CHECK(has(
      "p.yaml:13:14: error: bits after the prefix are set; write 10.0.0.0/8 or 10.0.0.1: \"10.0.0.1/8\""));
  CHECK(has("p.yaml:13:35: error: not a port: \"0\""));
  CHECK(has("p.yaml:13:38: error: a range that runs backwards: \"9-3\" (3-9)"));
  CHECK(has("p.yaml:15:38: error: not an RE2 expression"));
  CHECK(has(".* in place of *"));
}

TEST_CASE("what comes before a syntax error is still checked") {
  const std::string all = Of("file_rules:\n  - {paths: [x], decision: deny}\n  - {paths: ['/y'\n");
  INFO(all);
  CHECK(all.find("p.yaml:4:14: error: a relative path") != std::string::npos);
  CHECK(all.find("while parsing a flow") != std::string::npos);
  CHECK(all.find("no decision") == std::string::npos);  // the broken rule is not blamed for what is missing
}

TEST_CASE("byte order mark, CRLF and JSON load") {
  CHECK(Complaints("\xef\xbb\xbfversion: 1\r\nname: t\r\nfile_rules:\r\n  - {paths: [x], decision: deny}\r\n")
            .find("p.yaml:4:14:") == 0);
  CHECK(Complaints(R"({"version": 1, "name": "t", "file_rules": [{"paths": ["/x"], "decision": "deny"}]})")
            .empty());
  CHECK(Complaints("\xff\xfev").find("UTF-16") != std::string::npos);
  CHECK(Complaints(std::string("version: 1\nname: \xc3\x28\n")).find("not UTF-8") != std::string::npos);
}

TEST_CASE("duplicate keys, several documents and aliases to nowhere are errors") {
  CHECK(Complaints("version: 1\nname: a\nname: b\n")
            .find("p.yaml:3:1: error: the key is there twice: \"name\"") == 0);
  CHECK(Complaints("version: 1\nname: a\n---\nversion: 1\n").find("one document") != std::string::npos);
  CHECK(Of("description: *x\n").find("no anchor") != std::string::npos);
  CHECK(Of("metadata: &a [*a]\n").find("alias to what contains it") != std::string::npos);
}

TEST_CASE("anchors and merge keys work") {
  CHECK(Of("metadata: &m {decision: deny, operations: [read]}\nfile_rules:\n  - {<<: *m, paths: ['/x']}\n")
            .empty());
}

TEST_CASE("size, depth and alias expansion are bounded") {
  CHECK(Complaints(std::string((4u << 20) + 1, ' ')).find("4 MiB") != std::string::npos);
  CHECK(Of("metadata: " + std::string(100, '[') + std::string(100, ']')).find("deeper than 64") !=
        std::string::npos);
  std::string bomb = std::string(kHeader) + "metadata:\n  a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 9; ++i) {
    absl::StrAppend(&bomb, "  a", i, ": &a", i, " [");
    for (int k = 0; k < 10; ++k) absl::StrAppend(&bomb, k ? "," : "", "*a", i - 1);
    bomb += "]\n";
  }
  CHECK(Complaints(bomb).find("aliases expand to more than") != std::string::npos);
}

TEST_CASE("version, name and decision are required") {
  CHECK(Complaints("name: t\n").find("version is missing") != std::string::npos);
  CHECK(Complaints("version: 0\nname: t\n").find("greater than 0") != std::string::npos);
  CHECK(Complaints("version: 1\n").find("name is missing") != std::string::npos);
  CHECK(Complaints("").find("empty") != std::string::npos);
  CHECK(Complaints("- a\n").find("must be a map") != std::string::npos);
}

TEST_CASE("keys that nothing enforces are named, and refused unless the file asks for best effort") {
  const std::string refused = Of("http_services: []\n");
  CHECK(refused.find("p.yaml:3:1: warning: nothing enforces this yet") != std::string::npos);
  CHECK(
      refused.find("error: nothing enforces this, and the policy requires enforcement: \"http_services\"") !=
      std::string::npos);
  const std::string taken = Of("enforcement: best_effort\nhttp_services: []\ndb_anything: {}\n");
  CHECK(taken.find("error") == std::string::npos);
  CHECK(taken.find("db_anything") != std::string::npos);
}

TEST_CASE("sections of other systems are named and ignored") {
  const std::string all = Of("registry_rules: [{anything: 1}]\n");
  CHECK(all.find("note: ignored: Windows registry.: \"registry_rules\"") != std::string::npos);
  CHECK(all.find("error") == std::string::npos);
}

TEST_CASE("files of other tools load: every key of theirs") {
  const std::string all = Complaints(R"(
version: 1
name: theirs
description: |
  text
file_rules:
  - name: a
    description: x
    paths: ["${PROJECT_ROOT}/**", "~/x", "${HOME}/.npm/**", "**/.netrc", "**"]
    operations: ["*"]
    decision: approve
    message: "Delete {{.Path}}?"
    timeout: 5m
network_rules:
  - {name: n, domains: ["*"], ports: [443, 80], decision: approve, message: "{{.RemoteAddr}}:{{.RemotePort}}", timeout: 2m}
  - {name: m, cidrs: ["169.254.169.254/32", "::1/128"], decision: deny}
command_rules:
  - name: c
    commands: [curl]
    args_patterns: [".*-r.*", "^i$"]
    decision: redirect
    redirect_to: {command: fetch, args: ["--source", curl], args_append: [x], environment: {A: b}}
    context: [direct, nested]
unix_socket_rules:
  - {name: u, paths: ["/run/x", "@abstract"], operations: [connect, bind, listen, sendto], decision: allow}
signal_rules:
  - {name: s, signals: ["@all", SIGTERM, "15"], target: {type: external}, decision: deny, fallback: audit, message: m}
resource_limits: {max_memory_mb: 1, memory_swap_max_mb: 0, cpu_quota_percent: 1, disk_read_bps_max: 1,
  disk_write_bps_max: 1, net_bandwidth_mbps: 1, pids_max: 1, command_timeout: 5m, session_timeout: 1h30m, idle_timeout: 15m}
env_policy: {allow: ["A*"], deny: [B], max_bytes: 1, max_keys: 2}
env_inject: {A: b}
audit: {log_allowed: true, log_denied: true, log_approved: true, include_stdout: true, retention_days: 90}
transparent_commands: {add: [x], remove: [env]}
soft_delete: {enabled: true}
)");
  INFO(all);
  CHECK(all.find("error") == std::string::npos);
  CHECK(all.find("warning") == std::string::npos);
}

TEST_CASE("a network rate that is none, or beyond every device, is refused with its place") {
  const auto said = [](absl::string_view rate) {
    return Complaints(
        absl::StrCat("version: 1\nname: x\nresource_limits:\n  net_bandwidth_mbps: ", rate, "\n"));
  };
  CHECK(said("1") == "");
  CHECK(said("1000000") == "");
  for (const char* wrong : {"0", "1000001", "9223372036854775807"}) {
    CAPTURE(wrong);
    CHECK(said(wrong).find(":4:23: error") != std::string::npos);
    CHECK(said(wrong).find("must be from 1 to 1000000 megabit a second") != std::string::npos);
  }
}

TEST_CASE("Gensee's keys become rules, in YAML and JSON") {
  const std::string text = R"({"posture": "Enforce", "linux": {
    "seccomp": {"enabled": true, "deny_ptrace": true, "deny_bpf": false},
    "fanotify": {"paths": ["/tmp/demo/**", "~/.ssh/**", "**/.env"]},
    "network": {"mode": "allowlist", "allow": ["1.1.1.1", "10.0.0.0/8", "example.com"], "deny": ["10.1.0.0/16"]}}})";
  const Judge judge(MakeSnapshot({{LayerKind::kBase, text, "g.json"}}));
  CHECK(judge.snapshot().seccomp().ptrace);
  CHECK_FALSE(judge.snapshot().seccomp().bpf);
  CHECK(judge.File(kRead, "/tmp/demo/x") == "deny");
  CHECK(judge.File(kWrite, "/home/u/.ssh/id") == "deny");
  CHECK(judge.File(kRead, "/a/.env") == "deny");
  CHECK(judge.File(kWrite, "/elsewhere") == "allow");
  CHECK(judge.Exec("/usr/bin/ls", {}) == "allow");
  CHECK(judge.Connect("1.1.1.1", 443) == "allow");
  CHECK(judge.Connect("10.2.0.1", 443) == "allow");
  CHECK(judge.Connect("10.1.0.1", 443) == "deny");
  CHECK(judge.Connect("8.8.8.8", 443) == "deny");
  CHECK(judge.Query("example.com") == "allow");
}

TEST_CASE("a deny list without a mode leaves the rest of the network open") {
  const Judge judge(
      MakeSnapshot({{LayerKind::kBase, "linux: {network: {deny: [169.254.169.254]}}\n", "g.yaml"}}));
  CHECK(judge.Connect("169.254.169.254", 80) == "deny");
  CHECK(judge.Connect("8.8.8.8", 80) == "allow");
  const Judge all(MakeSnapshot({{LayerKind::kBase, "linux: {network: {mode: deny-all}}\n", "g.yaml"}}));
  CHECK(all.Connect("8.8.8.8", 80) == "deny");
}

TEST_CASE("every key of the table is read by the loader, with the type that the table says") {
  for (const Key& key : KeyTable()) {
    if (!key.section.empty() || key.state != KeyState::kUsed || key.type == ValueType::kAny) continue;
    const std::string all = Complaints(
        absl::StrCat("version: 1\nname: t\n",
                     key.name == "version" || key.name == "name" ? "" : absl::StrCat(key.name, ": {}\n")),
        false);
    INFO(key.name << ": " << all);
    CHECK(all.find("internal error") == std::string::npos);
  }
}

TEST_CASE("a directory or a FIFO in place of a policy file is refused without hanging") {
  char directory[] = "/tmp/policyXXXXXX";
  REQUIRE(mkdtemp(directory) != nullptr);
  const std::string base = directory;
  REQUIRE(mkfifo((base + "/fifo").c_str(), 0600) == 0);
  CHECK_FALSE(ReadPolicyFile(base).ok());
  CHECK_FALSE(ReadPolicyFile(base + "/fifo").ok());
  CHECK(ReadPolicyFile(base + "/none").status().code() == absl::StatusCode::kNotFound);
  std::ofstream(base + "/good") << "version: 1\n";
  CHECK(ReadPolicyFile(base + "/good").value() == "version: 1\n");
  for (const char* name : {"/fifo", "/good", ""}) std::remove((base + name).c_str());
}

}  // namespace agentmon::policy
