#include "daemon/policy/enforcement.h"

#include <catch2/catch.hpp>

#include "absl/strings/str_cat.h"
#include "common/policy/testing/snapshots.h"

namespace agentmon {
namespace {

constexpr char kRules[] =
    "defaults: {unix_socket: allow, signal: allow}\n"
    "unix_socket_rules:\n"
    "  - {name: both, paths: [/run/a], decision: deny}\n"
    "  - {name: listens, paths: [/run/a], operations: [bind, listen], decision: deny}\n"
    "command_rules:\n"
    "  - {name: command, commands: [id], decision: deny}\n"
    "file_rules:\n"
    "  - {name: writes, paths: [/srv/a], operations: [write], decision: deny}\n"
    "  - {name: deletes, paths: [/srv/a], operations: [delete], decision: deny}\n"
    "signal_rules:\n"
    "  - {name: outside, signals: [TERM], target: {type: external}, decision: deny}\n"
    "  - {name: parent, signals: [TERM], target: {type: parent}, decision: deny}\n"
    "  - {name: siblings, signals: [TERM], target: {type: siblings}, decision: deny}\n";

// "how mechanism" of one rule.
std::string How(absl::string_view rule, const SessionMeans& means, const char* rules = kRules) {
  const auto snapshot = policy::MakeBase(rules);
  for (const v1::RuleEnforcement& entry : ListEnforcement(*snapshot, means, {})) {
    if (entry.rule() == rule)
      return absl::StrCat(v1::RuleEnforcement::How_Name(entry.how()), " ", entry.mechanism());
  }
  return "";
}

TEST_CASE("rules on programs that may lie on a mount that is not marked are not enforced") {
  constexpr char kCommands[] =
      "defaults: {command: deny}\n"
      "command_rules:\n"
      "  - {name: there, commands: [/home/u/bin/x], decision: deny}\n"
      "  - {name: anywhere, commands: [x], anywhere: true, decision: deny}\n"
      "  - {name: elsewhere, commands: [/usr/bin/x], decision: deny}\n"
      "  - {name: trusted, commands: [x], decision: deny}\n";
  SessionMeans means;
  means.sources = {v1::FANOTIFY, v1::NOTIFY};
  means.armed = true;
  for (const char* rule : {"there", "anywhere", "elsewhere", "trusted", "default for command"})
    CHECK(How(rule, means, kCommands) == "KERNEL fanotify, notify");
  means.unmarked = {{"/home/u", "fuse.sshfs", "its server has not answered yet"}};
  for (const char* rule : {"there", "anywhere", "default for command"})
    CHECK(How(rule, means, kCommands) == "NONE ");
  for (const char* rule : {"elsewhere", "trusted"})
    CHECK(How(rule, means, kCommands) == "KERNEL fanotify, notify");
}

TEST_CASE("of rules on reads that reach into a mount that is not marked none is enforced") {
  constexpr char kFiles[] =
      "defaults: {file_read: deny}\n"
      "file_rules:\n"
      "  - {name: below, paths: [\"/home/u/.ssh/**\"], operations: [read], decision: deny}\n"
      "  - {name: anywhere, paths: [\"**/.env\"], operations: [read], decision: deny}\n"
      "  - {name: above, paths: [\"/home/*/x\"], operations: [read], decision: deny}\n"
      "  - {name: beside, paths: [\"/home/us/**\"], operations: [read], decision: deny}\n"
      "  - {name: changes, paths: [\"/home/u/**\"], operations: [delete], decision: deny}\n";
  SessionMeans means;
  means.sources = {v1::FANOTIFY, v1::NOTIFY};
  means.armed = true;
  means.controls = {"file_read"};
  for (const char* rule : {"below", "anywhere", "above", "beside", "default for file_read"})
    CHECK(How(rule, means, kFiles) == "KERNEL fanotify");
  means.unmarked = {{"/home/u", "fuse.sshfs", "its server has not answered yet"}};
  for (const char* rule : {"below", "anywhere", "above", "default for file_read"})
    CHECK(How(rule, means, kFiles) == "NONE ");
  CHECK(How("beside", means, kFiles) == "KERNEL fanotify");
  CHECK(How("changes", means, kFiles) == "KERNEL broker");
}

TEST_CASE("where no broker is in front, rules on changes are the kernel's when a change was tried") {
  constexpr char kFiles[] =
      "file_rules:\n"
      "  - {name: all, paths: [\"/srv/a/**\"], decision: deny}\n"
      "  - {name: reads, paths: [/srv/b], operations: [read], decision: deny}\n"
      "  - {name: writes, paths: [/srv/c], operations: [write], decision: deny}\n"
      "  - {name: device, paths: [/dev/sda], operations: [write], decision: deny}\n"
      "  - {name: pattern, paths: [\"/srv/*/d\"], operations: [write], decision: deny}\n";
  SessionMeans means;
  means.controls = {"lsm_open"};
  CHECK(How("reads", means, kFiles) == "KERNEL bpf_lsm");
  CHECK(How("all", means, kFiles) == "NONE ");
  CHECK(How("writes", means, kFiles) == "NONE ");
  means.controls = {"lsm_open", "lsm_change"};
  for (const char* rule : {"all", "reads", "writes"}) CHECK(How(rule, means, kFiles) == "KERNEL bpf_lsm");
  for (const char* rule : {"device", "pattern"}) CHECK(How(rule, means, kFiles) == "NONE ");
}

}  // namespace

TEST_CASE("rules on sockets are the kernel's where a connect was tried and stopped") {
  SessionMeans means;
  means.sources = {v1::NETWORK, v1::LSM};
  CHECK(How("both", means) == "OBSERVED network");
  means.controls = {"lsm_unix"};
  CHECK(How("both", means) == "KERNEL bpf_lsm");
  CHECK(How("listens", means) == "NONE ");
}

TEST_CASE("rules on names hold for what uses a proxy, and that counts where the others are judged, too") {
  constexpr char kNetwork[] =
      "network_rules:\n"
      "  - {name: named, domains: [a.test], decision: deny}\n"
      "  - {name: address, cidrs: [192.0.2.0/24], decision: deny}\n";
  SessionMeans means;
  CHECK(How("named", means, kNetwork) == "NONE ");
  means.controls = {"proxy"};
  CHECK(How("named", means, kNetwork) == "NONE proxy");
  CHECK(How("address", means, kNetwork) == "NONE proxy");
  means.controls = {"proxy", "network_calls"};
  CHECK(How("named", means, kNetwork) == "ASKED proxy");
  CHECK(How("address", means, kNetwork) == "KERNEL seccomp");
  // Else who does without the proxy does without the rule.
  const std::string open = absl::StrCat("defaults: {network: allow}\n", kNetwork);
  CHECK(How("named", means, open.c_str()) == "NONE proxy");
  CHECK(How("address", means, open.c_str()) == "KERNEL seccomp");
}

TEST_CASE("where nobody looks again, programs and opens for writing are asked; names are the broker's") {
  SessionMeans means;
  means.sources = {v1::NOTIFY};
  CHECK(How("command", means) == "NONE ");
  means.armed = true;
  CHECK(How("command", means) == "ASKED notify");
  CHECK(How("writes", means) == "ASKED broker");
  CHECK(How("deletes", means) == "KERNEL broker");
  means.sources = {v1::NOTIFY, v1::FANOTIFY, v1::PROCESS};
  CHECK(How("command", means) == "KERNEL fanotify, notify");
  CHECK(How("writes", means) == "KERNEL broker");
}

TEST_CASE("rules on signals are the kernel's for targets that it knows, by what was tried") {
  SessionMeans means;
  CHECK(How("outside", means) == "NONE ");
  means.controls = {"lsm_signal"};
  CHECK(How("outside", means) == "KERNEL bpf_lsm");
  CHECK(How("parent", means) == "KERNEL bpf_lsm");
  CHECK(How("siblings", means) == "NONE ");
  means.controls = {"signal"};
  CHECK(How("outside", means) == "KERNEL landlock");
  CHECK(How("parent", means) == "NONE ");
}

}  // namespace agentmon
