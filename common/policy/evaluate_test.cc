#include "common/policy/evaluate.h"

#include <fcntl.h>

#include <catch2/catch.hpp>

#include <csignal>

#include "common/policy/testing/snapshots.h"

namespace agentmon::policy {

TEST_CASE("the first rule that matches decides, in list order") {
  const Judge judge(R"(
file_rules:
  - {name: a, paths: ["/srv/a/ok"], operations: [read], decision: allow}
  - {name: b, paths: ["/srv/a/**"], decision: deny}
  - {name: c, paths: ["/srv/**"], decision: allow}
)");
  CHECK(judge.File(kRead, "/srv/a/ok") == "allow");
  CHECK(judge.File(kWrite, "/srv/a/ok") == "deny");
  CHECK(judge.File(kWrite, "/srv/b") == "allow");
  CHECK(judge.Of(FileSubject(kRead, "/srv/a/x")).rule->name == "b");
}

TEST_CASE("without a match reads are allowed and everything else is denied") {
  const Judge judge("");
  for (const uint32_t op : {kOpen, kRead, kStat, kList, kReadlink, kAccess})
    CHECK(judge.File(op, "/x") == "allow");
  for (const uint32_t op :
       {kWrite, kCreate, kMkdir, kChmod, kChown, kRename, kDelete, kRmdir, kLink, kSymlink, kMknod}) {
    CHECK(judge.File(op, "/x") == "deny");
  }
  CHECK(judge.Exec("/usr/bin/ls", {}) == "deny");
  CHECK(judge.Connect("1.2.3.4", 443) == "deny");
  CHECK(judge.Query("example.com") == "deny");
  CHECK(judge.Unix(kUnixConnect, "/run/x") == "deny");
  CHECK(judge.Signal(SIGTERM, kTargetExternal) == "deny");
}

TEST_CASE("defaults change what happens without a match") {
  const Judge judge(
      "defaults: {command: allow, file_read: deny, file_write: ask, network: audit, unix_socket: allow, "
      "signal: allow}\n");
  CHECK(judge.File(kRead, "/x") == "deny");
  CHECK(judge.File(kWrite, "/x") == "ask");
  CHECK(judge.Exec("/usr/bin/ls", {}) == "allow");
  CHECK(judge.Connect("1.2.3.4", 443) == "audit");
  CHECK(judge.Unix(kUnixConnect, "/run/x") == "allow");
  CHECK(judge.Signal(SIGTERM, kTargetExternal) == "allow");
}

TEST_CASE("X/** covers X, and paths are taken in any spelling") {
  const Judge judge("file_rules: [{paths: ['/srv/s/**'], decision: deny}]\n");
  CHECK(judge.File(kRead, "/srv/s") == "deny");
  CHECK(judge.File(kRead, "/srv//s/./a/../b/") == "deny");
  CHECK(judge.File(kRead, "/srv/x/../s/b") == "deny");
  CHECK(judge.File(kRead, "/srv/S/b") == "allow");
  CHECK(judge.File(kRead, "/srv/s/\xff\xfe\n") == "deny");
  CHECK(judge.File(kRead, "/srv/ss") == "allow");
  CHECK(judge.File(kRead, "srv/s") == "deny");  // not resolved: nothing can be said for it
}

TEST_CASE("how an open is classed") {
  CHECK(OperationsOfOpen(O_RDONLY) == (kOpen | kRead));
  CHECK(OperationsOfOpen(O_WRONLY) == kWrite);
  CHECK(OperationsOfOpen(O_WRONLY | O_CREAT) == kWrite);
  CHECK((OperationsOfOpen(O_RDONLY | O_TRUNC) & kWrite));
  CHECK((OperationsOfOpen(O_RDWR) & kRead));
  CHECK(OperationsOfOpen(O_WRONLY | O_CREAT | O_EXCL) == kCreate);
  CHECK(OperationsOfOpen(O_RDWR | O_TMPFILE) == kCreate);
  CHECK(OperationsOfOpen(O_RDONLY | O_DIRECTORY) == (kOpen | kRead));
}

TEST_CASE("what stops writing stops planting, moving and linking too") {
  const Judge judge(R"(
file_rules:
  - {paths: ['**/.git/hooks/**', '/home/u/ws/.agent/settings.json'], operations: [write], decision: deny}
  - {paths: ['/home/u/secret/**'], operations: [read], decision: deny}
  - {paths: ['/home/u/**'], decision: allow}
)");
  CHECK(judge.File(kRename, "/home/u/ws/x", "/home/u/ws/.git/hooks/pre-commit") == "deny");
  CHECK(judge.File(kLink, "/home/u/ws/x", "/home/u/ws/.git/hooks/pre-commit") == "deny");
  CHECK(judge.File(kSymlink, "/home/u/ws/.git/hooks/pre-commit") == "deny");
  CHECK(judge.File(kDelete, "/home/u/ws/.git/hooks/pre-commit") == "deny");
  CHECK(judge.File(kMkdir, "/home/u/ws/.agent/settings.json") == "deny");
  CHECK(judge.File(kRename, "/home/u/ws/.git/hooks", "/home/u/ws/h") == "deny");
  CHECK(judge.File(kLink, "/home/u/secret/k", "/home/u/ws/k") == "deny");
  CHECK(judge.File(kRename, "/home/u/ws/a", "/home/u/ws/b") == "allow");
  Subject move = FileSubject(kRename, "/home/u/ws/.agent", "/home/u/ws/.other");
  CHECK(judge.Of(move).effective == Decision::kAllow);
  move.directory = true;
  CHECK(judge.Of(move).effective == Decision::kDeny);
}

TEST_CASE("names match only in trusted directories unless the rule says anywhere") {
  const Judge judge(R"(
command_rules:
  - {name: no-curl, commands: [curl], anywhere: true, decision: deny}
  - {name: git, commands: [git], decision: allow}
  - {name: tool, commands: ["/opt/tools/**"], decision: allow}
)");
  CHECK(judge.Exec("/usr/bin/git", {"status"}) == "allow");
  CHECK(judge.Exec("/usr/bin/GIT", {"status"}) == "allow");
  CHECK(judge.Exec("/home/u/ws/git", {"status"}) == "deny");
  CHECK(judge.Of(ExecSubject("/home/u/ws/curl", {})).rule->name == "no-curl");
  CHECK(judge.Exec("/opt/tools/x", {}) == "allow");
  CHECK(judge.Exec("/opt/Tools/x", {}) == "deny");
  CHECK(judge.Exec("/usr/bin/git.real", {}) == "allow");
}

TEST_CASE("a trusted name that leads to the binary is as good as the binary's own") {
  const Judge judge("command_rules: [{commands: [python3], decision: allow}]\n");
  const std::vector<absl::string_view> argv = {"python3"};
  Subject s = ExecSubject("/usr/bin/python3.11", argv);
  s.file = "/usr/bin/python3";
  CHECK(judge.Of(s).effective == Decision::kAllow);
  s.file = "/home/u/ws/python3";
  s.argv = {};
  CHECK(judge.Of(s).effective == Decision::kDeny);
}

TEST_CASE("the predicate for trusted directories is the caller's") {
  Judge judge("command_rules: [{commands: [git], decision: allow}]\n");
  const std::function<bool(absl::string_view)> only_opt = [](absl::string_view d) { return d == "/opt/bin"; };
  judge.options.trusted_directory = &only_opt;
  CHECK(judge.Exec("/opt/bin/git", {}) == "allow");
  CHECK(judge.Exec("/usr/bin/git", {}) == "deny");
}

TEST_CASE("expressions are searched in the whole argv and in the arguments alone") {
  const Judge judge(R"(
defaults: {command: allow}
command_rules:
  - {name: a, commands: [git], args_patterns: ['^push .*--force'], decision: deny}
  - {name: b, commands: [git], args_patterns: ['^git fetch$'], decision: ask}
  - {name: c, commands: [git], args: ["--exec", "x y"], decision: deny}
)");
  CHECK(judge.Exec("/usr/bin/git", {"push", "o", "--force"}) == "deny");
  CHECK(judge.Exec("/usr/bin/git", {"fetch"}) == "ask");
  CHECK(judge.Exec("/usr/bin/git", {"fetch", "x"}) == "allow");
  CHECK(judge.Exec("/usr/bin/git", {"a", "x y", "--exec"}) == "deny");
  CHECK(judge.Exec("/usr/bin/git", {"a", "x", "y", "--exec"}) == "allow");
  CHECK(judge.Exec("/usr/bin/git", {"push", "\xff\n", "--force"}) == "deny");
}

TEST_CASE("a name in argv[0] neither hides from a rule nor passes for one") {
  const Judge judge(R"(
command_rules:
  - {name: a, commands: [git], args_patterns: ['^git push'], decision: deny}
  - {name: b, commands: [git], args_patterns: ['^git status$'], decision: allow}
)");
  std::vector<absl::string_view> argv = {"nothing", "push"};
  CHECK(judge.Of(ExecSubject("/usr/bin/git", argv)).rule->name == "a");
  argv = {"git status"};
  CHECK(judge.Of(ExecSubject("/usr/bin/git", argv)).rule == nullptr);
}

TEST_CASE("the strictest of wrapper and payload counts, but a default of the payload does not") {
  const Judge judge(R"(
command_rules:
  - {commands: [wget], decision: deny}
  - {commands: [sh, env, echo], decision: allow}
)");
  CHECK(judge.Exec("/usr/bin/sh", {"-c", "echo x; wget y"}) == "deny");
  CHECK(judge.Exec("/usr/bin/env", {"A=b", "wget"}) == "deny");
  CHECK(judge.Exec("/usr/bin/sh", {"-c", "unknown-program"}) == "allow");
  CHECK(judge.Exec("/usr/bin/sh", {"-c", "$(("}) == "allow");
  const std::vector<absl::string_view> argv = {"sh", "-c", "wget y"};
  const Verdict verdict = judge.Of(ExecSubject("/usr/bin/sh", argv));
  CHECK(verdict.derived);
  CHECK(verdict.via == "sh -c");
}

TEST_CASE("context limits a rule to depths") {
  const Judge judge(R"(
defaults: {command: allow}
command_rules:
  - {commands: [a], context: [direct], decision: deny}
  - {commands: [b], context: [nested], decision: deny}
  - {commands: [c], context: {min_depth: 2, max_depth: 3}, decision: deny}
  - {commands: [d], context: {min_depth: 2, max_depth: -1}, decision: deny}
)");
  const auto at = [&](absl::string_view exe, int depth) {
    Subject s = ExecSubject(exe, {});
    s.depth = depth;
    return judge.Of(s).effective == Decision::kDeny;
  };
  CHECK((at("/usr/bin/a", 0) && !at("/usr/bin/a", 1)));
  CHECK((!at("/usr/bin/b", 0) && at("/usr/bin/b", 1) && at("/usr/bin/b", 9)));
  CHECK((!at("/usr/bin/c", 1) && at("/usr/bin/c", 2) && at("/usr/bin/c", 3) && !at("/usr/bin/c", 4)));
  CHECK((!at("/usr/bin/d", 1) && at("/usr/bin/d", 99)));
}

TEST_CASE("a rule on a directory that is a link on the host holds on what it leads to") {
  const Judge judge(R"(
defaults: {command: allow}
command_rules: [{commands: [/bin/rm], decision: deny}]
file_rules: [{paths: ['/lib/secret/**', '/var/run/x'], decision: deny}]
)");
  CHECK(judge.Exec("/usr/bin/rm", {}) == "deny");
  CHECK(judge.Exec("/usr/bin/rmdir", {}) == "allow");
  CHECK(judge.File(kRead, "/usr/lib/secret/a") == "deny");
  CHECK(judge.File(kRead, "/run/x") == "deny");
}

TEST_CASE("destinations by address, prefix, port, range and protocol") {
  const Judge judge(R"(
network_rules:
  - {name: meta, cidrs: [169.254.0.0/16], decision: deny}
  - {name: web, cidrs: [10.0.0.0/8, "fd00::/8"], ports: [443, "8000-8099"], protocol: tcp, decision: allow}
  - {name: dns, cidrs: [9.9.9.9], ports: [53], decision: allow}
)");
  CHECK(judge.Connect("10.1.2.3", 443) == "allow");
  CHECK(judge.Connect("10.1.2.3", 8050) == "allow");
  CHECK(judge.Connect("10.1.2.3", 8100) == "deny");
  CHECK(judge.Connect("10.1.2.3", 443, kUdp) == "deny");
  CHECK(judge.Connect("fd00::1", 443) == "allow");
  CHECK(judge.Connect("11.0.0.1", 443) == "deny");
  CHECK(judge.Connect("9.9.9.9", 53, kUdp) == "allow");
  CHECK(judge.Connect("::ffff:10.0.0.1", 443) == "allow");
  CHECK(judge.Connect("64:ff9b::a00:1", 443) == "allow");
  CHECK(judge.Connect("0xa.0.0.1", 443) == "allow");
  CHECK(judge.Connect("167772161", 443) == "allow");
}

TEST_CASE("destinations by name") {
  const Judge judge(R"(
network_rules:
  - {domains: ["*.GitHub.com", "b\u00fccher.example."], ports: [443], decision: allow}
  - {domains: ["**.corp"], decision: allow}
  - {domains: [localhost], decision: allow}
  - {domains: ["10.9.9.9"], decision: allow}
)");
  CHECK(judge.Connect("1.1.1.1", 443, kTcp, "api.github.com") == "allow");
  CHECK(judge.Connect("1.1.1.1", 443, kTcp, "API.github.com.") == "allow");
  CHECK(judge.Connect("1.1.1.1", 443, kTcp, "github.com") == "deny");
  CHECK(judge.Connect("1.1.1.1", 443, kTcp, "a.b.github.com") == "deny");
  CHECK(judge.Connect("1.1.1.1", 22, kTcp, "api.github.com") == "deny");
  CHECK(judge.Connect("1.1.1.1", 443, kTcp, "xn--bcher-kva.example") == "allow");
  CHECK(judge.Connect("1.1.1.1", 443, kTcp,
                      "B\xc3\x9c"
                      "CHER.example") == "allow");
  CHECK(judge.Connect("1.1.1.1", 1, kTcp, "a.b.corp") == "allow");
  CHECK(judge.Connect("127.3.4.5", 80) == "allow");
  CHECK(judge.Connect("::1", 80) == "allow");
  CHECK(judge.Connect("::ffff:127.0.0.9", 80) == "allow");
  CHECK(judge.Connect("10.9.9.9", 80) == "allow");
  CHECK(judge.Query("api.github.com") == "allow");
  CHECK(judge.Query("evil.com") == "deny");
}

TEST_CASE("a query is let through by what allows some ports, and not stopped by what stops some") {
  const Judge judge(R"(
network_rules:
  - {domains: [a.example], ports: [22], decision: deny}
  - {domains: ["*.example"], ports: [443], decision: allow}
)");
  CHECK(judge.Query("a.example") == "allow");
  CHECK(judge.Connect("1.1.1.1", 22, kTcp, "a.example") == "deny");
}

TEST_CASE("** is every destination, with or without a name") {
  const Judge judge("network_rules: [{domains: ['**'], ports: [443], decision: allow}]\n");
  CHECK(judge.Connect("1.1.1.1", 443) == "allow");
  CHECK(judge.Connect("1.1.1.1", 443, kTcp, "a.b") == "allow");
  CHECK(judge.Connect("1.1.1.1", 80) == "deny");
  CHECK(judge.Query("a.b") == "allow");
}

TEST_CASE("unix sockets by path and abstract name") {
  const Judge judge(R"(
defaults: {unix_socket: allow}
unix_socket_rules:
  - {paths: ["/run/docker.sock", "@host-*"], operations: [connect, sendmsg], decision: deny}
)");
  CHECK(judge.Unix(kUnixConnect, "/run/docker.sock") == "deny");
  CHECK(judge.Unix(kUnixSendto, "@host-x") == "deny");
  CHECK(judge.Unix(kUnixBind, "@host-x") == "allow");
  CHECK(judge.Unix(kUnixConnect, "@hostx") == "allow");
}

TEST_CASE("signals by group, target and name") {
  const Judge judge(R"(
signal_rules:
  - {signals: ["@all"], target: {type: self}, decision: allow}
  - {signals: ["@fatal", 9], target: {type: external}, decision: deny}
  - {signals: [SIGUSR1], target: {type: process, pattern: "nginx*"}, decision: allow}
  - {signals: [HUP], target: {type: pid_range, min: 100, max: 200}, decision: ask}
)");
  CHECK(judge.Signal(SIGTERM, kTargetSelf | kTargetSession) == "allow");
  CHECK(judge.Signal(SIGTERM, kTargetExternal) == "deny");
  Subject s = SignalSubject(SIGUSR1, kTargetExternal);
  s.target_name = "nginx: worker";
  CHECK(judge.Of(s).effective == Decision::kAllow);
  s = SignalSubject(SIGHUP, kTargetUser);
  s.target_pid = 150;
  CHECK(judge.Of(s).effective == Decision::kAsk);
  s.target_pid = 201;
  CHECK(judge.Of(s).effective == Decision::kDeny);
  CHECK(judge.Signal(40, kTargetSelf) == "deny");  // @all is 1 to 31
}

TEST_CASE("a question with nobody to ask is a denial") {
  Judge judge("file_rules: [{paths: ['/x'], decision: approve}]\n");
  CHECK(judge.File(kRead, "/x") == "ask");
  judge.options.approver = false;
  CHECK(judge.File(kRead, "/x") == "deny");
  CHECK(judge.Of(FileSubject(kRead, "/x")).decision == Decision::kAsk);
}

TEST_CASE("what nothing can carry out is a denial with the rule's message") {
  Judge judge(R"(
command_rules: [{commands: [curl], decision: redirect, message: "use {{.Path}} {{.Args}}", redirect_to: {command: fetch}}]
file_rules: [{paths: ['/x'], operations: [delete, write], decision: soft_delete}]
signal_rules: [{target: {type: external}, decision: absorb}]
)");
  const std::vector<absl::string_view> argv = {"curl", "a", "b"};
  const Subject curl = ExecSubject("/usr/bin/curl", argv);
  CHECK(judge.Of(curl).effective == Decision::kDeny);
  CHECK(Describe(judge.snapshot(), judge.Of(curl), curl).message == "use /usr/bin/curl a b");
  CHECK(judge.File(kDelete, "/x") == "deny");
  CHECK(judge.File(kWrite, "/x") == "allow");
  CHECK(judge.Signal(SIGTERM, kTargetExternal) == "deny");
  judge.options.can_redirect_command = judge.options.can_soft_delete = judge.options.can_absorb = true;
  CHECK(judge.Of(curl).effective == Decision::kRedirect);
  CHECK(judge.File(kDelete, "/x") == "soft_delete");
  CHECK(judge.Signal(SIGTERM, kTargetExternal) == "absorb");
}

TEST_CASE("postures: monitor records, warn tells, isolate has no network") {
  const Judge monitor("posture: monitor\nfile_rules: [{paths: ['/x'], decision: deny}]\n");
  const Verdict verdict = monitor.Of(FileSubject(kRead, "/x"));
  CHECK(verdict.decision == Decision::kDeny);
  CHECK(verdict.effective == Decision::kAudit);
  CHECK(verdict.posture == Posture::kMonitor);
  CHECK(monitor.Query("example.com") == "audit");
  const Judge warn("posture: Warn\n");
  CHECK(warn.Connect("1.1.1.1", 443) == "audit");
  CHECK(warn.Of(FileSubject(kWrite, "/x")).posture == Posture::kWarn);
  const Judge isolate("posture: isolate\nnetwork_rules: [{domains: ['**'], decision: allow}]\n");
  CHECK(isolate.Connect("1.1.1.1", 443) == "deny");
}

TEST_CASE("a verdict names its rule, file, line and message") {
  const Judge judge(
      "file_rules:\n  - name: no-x\n    paths: ['/x']\n    decision: deny\n    message: \"not {{.Path}}\"\n");
  const Subject subject = FileSubject(kRead, "/x");
  const VerdictText text = Describe(judge.snapshot(), judge.Of(subject), subject);
  CHECK(text.rule == "no-x");
  CHECK(text.file == "test.yaml");
  CHECK(text.at.line == 4);
  CHECK(text.layer == "base: test");
  CHECK(text.message == "not /x");
}

}  // namespace agentmon::policy
