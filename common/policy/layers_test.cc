#include <catch2/catch.hpp>

#include <stdexcept>

#include "absl/strings/str_cat.h"
#include "common/policy/testing/snapshots.h"

namespace agentmon::policy {
namespace {

constexpr char kHead[] = "version: 1\nname: x\n";

TestLayer Layer(LayerKind kind, absl::string_view text) {
  return {kind, absl::StrCat(kHead, text), absl::StrCat(LayerKindName(kind), ".yaml")};
}

const TestLayer kFloor = Layer(LayerKind::kFloor, R"(
file_rules: [{name: floor-file, paths: ["/srv/f/**"], decision: deny}]
command_rules: [{name: floor-command, commands: [wget], anywhere: true, decision: deny}]
network_rules: [{name: floor-net, cidrs: [10.0.0.0/8], decision: deny}]
unix_socket_rules: [{name: floor-unix, paths: ["/run/docker.sock"], decision: deny}]
signal_rules: [{name: floor-signal, target: {type: external}, decision: deny}]
)");
const TestLayer kOpenBase = Layer(LayerKind::kBase, R"(
defaults: {command: allow, file_read: allow, file_write: allow, network: allow, unix_socket: allow, signal: allow}
)");

// The floor's five denials hold under these layers.
void CheckFloorHolds(const std::vector<TestLayer>& layers, const CompileOptions& options = TestOptions()) {
  const Judge judge(MakeSnapshot(layers, options));
  CHECK(judge.File(kRead, "/srv/f/x") == "deny");
  CHECK(judge.Exec("/home/u/ws/wget", {}) == "deny");
  CHECK(judge.Exec("/usr/bin/env", {"wget"}) == "deny");
  CHECK(judge.Connect("10.0.0.1", 80) == "deny");
  CHECK(judge.Unix(kUnixConnect, "/run/docker.sock") == "deny");
  CHECK(judge.Signal(15, kTargetExternal) == "deny");
  CHECK(Describe(judge.snapshot(), judge.Of(FileSubject(kRead, "/srv/f/x")), FileSubject(kRead, "/srv/f/x"))
            .rule == "floor-file");
  // The control: the same acts elsewhere are allowed.
  CHECK(judge.File(kRead, "/srv/g/x") != "deny");
  CHECK(judge.Exec("/usr/bin/env", {"ls"}) != "deny");
}

}  // namespace

TEST_CASE("the floor holds under an open base") { CheckFloorHolds({kFloor, kOpenBase}); }

TEST_CASE("no key of an inner layer switches the floor off") {
  constexpr const char* kAllAllowed =
      "defaults: {command: allow, file_read: allow, file_write: allow, network: allow, unix_socket: allow, "
      "signal: allow}\n";
  for (const LayerKind kind : {LayerKind::kBase, LayerKind::kUser, LayerKind::kSession}) {
    for (const char* text : {
             "posture: monitor\n",
             "posture: warn\n",
             "enforcement: best_effort\n",
             kAllAllowed,
             "linux: {seccomp: {enabled: false}, network: {mode: \"off\"}}\n",
             "transparent_commands: {remove: [env, sh, bash]}\n",
             "file_rules: [{paths: ['**'], decision: allow}]\n",
             "network_rules: [{domains: ['**'], decision: allow}]\n",
             "command_rules: [{decision: allow}]\n",
             "unix_socket_rules: [{paths: ['**'], decision: allow}]\n",
             "signal_rules: [{target: {type: external}, decision: allow}]\n",
             "audit: {log_denied: false}\n",
             "nested: allow\n",
         }) {
      INFO(LayerKindName(kind) << ": " << text);
      std::vector<TestLayer> layers = {kFloor, Layer(kind, text)};
      if (kind != LayerKind::kBase) layers.push_back(kOpenBase);
      const Judge judge(MakeSnapshot(layers));
      CHECK(judge.File(kRead, "/srv/f/x") == "deny");
      CHECK(judge.Exec("/usr/bin/env", {"wget"}) == "deny");
      CHECK(judge.Connect("10.0.0.1", 80) == "deny");
      CHECK(judge.Unix(kUnixConnect, "/run/docker.sock") == "deny");
      CHECK(judge.Signal(15, kTargetExternal) == "deny");
    }
  }
}

TEST_CASE("no variable of the session moves a rule of the floor") {
  CompileOptions options = TestOptions();
  options.variables.session = {
      {"XDG_CONFIG_HOME", "/nowhere"}, {"HOME", "/nowhere"}, {"WORKSPACE", "/nowhere"}};
  const TestLayer floor = Layer(LayerKind::kFloor, R"(
file_rules: [{paths: ["${XDG_CONFIG_HOME:-${HOME}/.config}/x/**"], decision: deny}]
)");
  const Judge judge(MakeSnapshot({floor, kOpenBase}, options));
  CHECK(judge.File(kRead, "/home/u/.config/x/a") == "deny");
  // The control: a base policy, the session's own choice, does see it.
  TestLayer base = floor;
  base.kind = LayerKind::kBase;
  const Judge own(MakeSnapshot({base}, options));
  CHECK(own.File(kRead, "/home/u/.config/x/a") == "allow");
  CHECK(own.File(kRead, "/nowhere/x/a") == "deny");
}

TEST_CASE("outside of the base a layer without a match has no say") {
  const Judge judge(
      MakeSnapshot({kOpenBase, Layer(LayerKind::kUser, "file_rules: [{paths: ['/a'], decision: deny}]\n")}));
  CHECK(judge.File(kWrite, "/a") == "deny");
  CHECK(judge.File(kWrite, "/b") == "allow");
  CHECK(judge.Exec("/usr/bin/ls", {}) == "allow");
}

TEST_CASE("the strictest layer wins, whatever its place") {
  const std::string rule = "file_rules: [{paths: ['/a'], decision: ";
  const std::vector<std::string> order = {"allow", "audit", "redirect", "ask", "deny"};
  for (size_t i = 0; i < order.size(); ++i) {
    for (size_t k = 0; k < order.size(); ++k) {
      Judge judge(MakeSnapshot({Layer(LayerKind::kBase, rule + order[i] + "}]\n"),
                                Layer(LayerKind::kUser, rule + order[k] + "}]\n")}));
      judge.options.can_redirect_file = true;
      CHECK(judge.File(kRead, "/a") == order[std::max(i, k)]);
    }
  }
}

TEST_CASE("a layer's posture holds for itself and those inside it that say none") {
  const auto stops = [](const char* floor, const char* base, const char* user, const char* path) {
    const Judge judge(MakeSnapshot(
        {Layer(LayerKind::kFloor, absl::StrCat(floor, "file_rules: [{paths: ['/f'], decision: deny}]\n")),
         Layer(LayerKind::kBase, absl::StrCat(base, "file_rules: [{paths: ['/b'], decision: deny}]\n")),
         Layer(LayerKind::kUser, absl::StrCat(user, "file_rules: [{paths: ['/u'], decision: deny}]\n"))}));
    return judge.File(kRead, path) == "deny";
  };
  CHECK(stops("", "posture: monitor\n", "", "/f"));
  CHECK_FALSE(stops("", "posture: monitor\n", "", "/b"));
  CHECK_FALSE(stops("", "posture: monitor\n", "", "/u"));
  CHECK(stops("", "posture: monitor\n", "posture: enforce\n", "/u"));
  CHECK(stops("", "", "posture: monitor\n", "/b"));
  CHECK_FALSE(stops("posture: monitor\n", "", "", "/u"));
}

TEST_CASE("files of one layer do not speak for each other") {
  TestLayer one = Layer(LayerKind::kUser, "posture: monitor\n");
  TestLayer two = Layer(LayerKind::kUser, "file_rules: [{paths: ['/u'], decision: deny}]\n");
  CHECK(Judge(MakeSnapshot({kOpenBase, one, two})).File(kRead, "/u") == "deny");
  CHECK(Judge(MakeSnapshot({kOpenBase, two, one})).File(kRead, "/u") == "deny");
  const TestLayer allow = Layer(LayerKind::kFloor, "file_rules: [{paths: ['**'], decision: allow}]\n");
  CheckFloorHolds({allow, kFloor, kOpenBase});
}

TEST_CASE("best effort of an inner layer does not excuse what the floor cannot enforce") {
  const TestLayer floor = Layer(LayerKind::kFloor, "http_services: []\n");
  CHECK_THROWS_AS(MakeSnapshot({floor, kOpenBase, Layer(LayerKind::kSession, "enforcement: best_effort\n")}),
                  std::runtime_error);
  CHECK_NOTHROW(
      MakeSnapshot({Layer(LayerKind::kFloor, "enforcement: best_effort\nhttp_services: []\n"), kOpenBase}));
}

TEST_CASE("privileges are given by the floor alone, and taken away by anybody") {
  const std::string yes = "allow_privileges: true\n", no = "allow_privileges: false\n";
  const TestLayer given = Layer(LayerKind::kFloor, yes);
  CHECK(MakeSnapshot({given, kOpenBase})->allow_privileges());
  CHECK_FALSE(MakeSnapshot({kFloor, kOpenBase})->allow_privileges());
  for (const LayerKind kind : {LayerKind::kFloor, LayerKind::kBase, LayerKind::kUser, LayerKind::kSession}) {
    const TestLayer taken = Layer(kind, no);
    CHECK_FALSE(MakeSnapshot({given, taken})->allow_privileges());
    CHECK_FALSE(MakeSnapshot({taken, given})->allow_privileges());
    if (kind != LayerKind::kFloor) {
      CHECK_THROWS_AS(MakeSnapshot({given, Layer(kind, yes)}), std::runtime_error);
      CHECK_THROWS_AS(MakeSnapshot({Layer(kind, yes)}), std::runtime_error);
    }
  }
}

TEST_CASE("built-in rules come first and hold in every posture") {
  const Judge judge(MakeSnapshot({Layer(LayerKind::kBase, R"(
posture: monitor
defaults: {file_read: deny}
file_rules: [{paths: ['/dev/null'], decision: deny}, {paths: ['**'], decision: allow}]
unix_socket_rules: [{paths: ['**'], decision: allow}]
)")}));
  CHECK(judge.File(kRead, "/var/lib/agentmon/agentmon.db") == "deny");
  CHECK(judge.File(kDelete, "/run/agentmon") == "deny");
  CHECK(judge.File(kWrite, "/etc/agentmon/floor.d/x") == "deny");
  CHECK(judge.File(kRename, "/home/u/x", "/home/u/.config/agentmon/policy.d/x.yaml") == "deny");
  CHECK(judge.File(kRead, "/etc/agentmon/agentmond.yaml") == "allow");
  CHECK(judge.Unix(kUnixConnect, "/run/agentmon/holder.sock") == "deny");
  CHECK(judge.Unix(kUnixConnect, "/run/agentmon/agentmond.sock") == "allow");
  CHECK(judge.Exec("/run/agentmon/canary/x", {}) == "deny");
  CHECK(judge.File(kWrite, "/dev/null") == "allow");
}

TEST_CASE("who answers for names beside DNS is closed where something of the network is stopped") {
  const std::string head = "defaults: {network: allow, unix_socket: allow}\n";
  const std::string allow = "unix_socket_rules: [{paths: ['**'], decision: allow}]\n";
  const std::string rule = "network_rules: [{name: n, domains: [x.test], decision: deny}]\n";
  const auto base = [](const std::string& text) { return MakeSnapshot({Layer(LayerKind::kBase, text)}); };
  const auto resolved = [](const std::shared_ptr<const Snapshot>& snapshot) {
    return Judge(snapshot).Unix(kUnixConnect, "/run/systemd/resolve/io.systemd.Resolve");
  };
  CHECK(resolved(base(head)) == "allow");
  CHECK(resolved(base(head + allow + rule)) == "deny");
  CHECK(resolved(base("posture: monitor\n" + head + rule)) == "allow");
  CHECK(resolved(base("defaults: {unix_socket: allow}\n")) == "deny");  // all destinations
  CHECK(resolved(base("posture: isolate\n" + head)) == "deny");
  CHECK(resolved(MakeSnapshot({Layer(LayerKind::kFloor, rule), Layer(LayerKind::kBase, head)})) == "deny");
  const Judge judge(base(head + allow + rule));
  for (const char* socket : {"/var/run/nscd/socket", "/run/nscd/socket", "/run/avahi-daemon/socket"})
    CHECK(judge.Unix(kUnixConnect, socket) == "deny");
  for (const char* socket :
       {"/run/systemd/resolve/other", "/var/lib/sss/pipes/nss", "/run/dbus/system_bus_socket"})
    CHECK(judge.Unix(kUnixConnect, socket) == "allow");
  const Subject nscd = UnixSubject(kUnixConnect, "/run/nscd/socket");
  CHECK(Describe(judge.snapshot(), judge.Of(nscd), nscd).rule == "name-services");
}

TEST_CASE("programs start under a policy that denies everything") {
  const Judge judge("defaults: {file_read: deny}\nfile_rules: [{paths: ['**'], decision: deny}]\n");
  for (const char* path :
       {"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/ptmx"}) {
    CHECK(judge.File(kWrite, path) == "allow");
    CHECK(judge.File(kOpen | kRead, path) == "allow");
  }
  CHECK(judge.File(kOpen | kRead, "/etc/ld.so.cache") == "allow");
  CHECK(judge.File(kOpen | kRead, "/usr/lib/x86_64-linux-gnu/libc.so.6") == "allow");
  CHECK(judge.File(kOpen | kRead, "/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2") == "allow");
  CHECK(judge.File(kOpen | kRead, "/lib64/ld-linux-x86-64.so.2") == "allow");
  CHECK(judge.File(kOpen | kRead, "/home/u/ws/evil.so") == "deny");
  CHECK(judge.File(kWrite, "/usr/lib/x86_64-linux-gnu/libc.so.6") == "deny");
  CHECK(judge.File(kDelete, "/dev/null") == "deny");
  CHECK(judge.File(kWrite, "/dev/pts/3") == "deny");
  Subject own = FileSubject(kWrite, "/dev/pts/3");
  own.own_terminal = true;
  CHECK(judge.Of(own).effective == Decision::kAllow);
}

TEST_CASE("limits of a layer that only records hold nobody") {
  for (const char* posture : {"monitor", "warn", "enforce"}) {
    const auto snapshot = MakeSnapshot(
        {Layer(LayerKind::kBase, absl::StrCat("posture: ", posture, "\nresource_limits: {pids_max: 5}\n"))});
    CHECK(snapshot->limits().pids_max == (posture == std::string("enforce") ? 5 : 0));
  }
}

TEST_CASE("limits, environment and seccomp are the strictest of all layers") {
  const auto snapshot = MakeSnapshot({Layer(LayerKind::kFloor, R"(
resource_limits: {pids_max: 500, session_timeout: 12h}
env_policy: {deny: ["CORP_*"]}
env_inject: {A: floor}
linux: {seccomp: {deny_ptrace: true}}
)"),
                                      Layer(LayerKind::kBase, R"(
resource_limits: {pids_max: 900, max_memory_mb: 100, memory_swap_max_mb: 0}
env_inject: {A: base, B: base}
)"),
                                      Layer(LayerKind::kUser, "resource_limits: {pids_max: 100}\n")});
  CHECK(snapshot->limits().pids_max == 100);
  CHECK(snapshot->limits().max_memory_mb == 100);
  CHECK(snapshot->limits().memory_swap_max_mb == 0);
  CHECK(snapshot->limits().session_timeout == absl::Hours(12));
  CHECK(snapshot->seccomp().ptrace);
  CHECK_FALSE(snapshot->EnvAllowed("CORP_KEY"));
  CHECK_FALSE(snapshot->EnvAllowed("LD_PRELOAD"));
  CHECK_FALSE(snapshot->EnvAllowed("GITHUB_TOKEN"));
  CHECK(snapshot->EnvAllowed("PATH"));
  CHECK(snapshot->EnvAllowed("AGENTMON_SESSION"));
  std::map<std::string, std::string> injected(snapshot->env_inject().begin(), snapshot->env_inject().end());
  CHECK(injected["A"] == "floor");
  CHECK(injected["B"] == "base");
}

TEST_CASE("an allow list of variables is all that passes") {
  const auto snapshot = MakeBase("env_policy: {allow: [PATH, 'LC_*', GITHUB_TOKEN], deny: [LC_ALL]}\n");
  CHECK(snapshot->EnvAllowed("GITHUB_TOKEN"));
  CHECK(snapshot->EnvAllowed("LC_TIME"));
  CHECK_FALSE(snapshot->EnvAllowed("LC_ALL"));
  CHECK_FALSE(snapshot->EnvAllowed("HOME"));
  std::string why;
  snapshot->EnvAllowed("HOME", &why);
  CHECK(why == "base: test: not in env_policy.allow");
}

TEST_CASE("an undefined variable is an error with its place; defaults nest; values are literal") {
  CHECK(Complaints("version: 1\nname: t\nfile_rules: [{paths: ['/x/${NOPE}'], decision: deny}]\n")
            .find("p.yaml:3:28: error: the session has no variable NOPE") == 0);
  CompileOptions options = TestOptions();
  options.variables.derived["WORKSPACE"] = "/srv/[a]*";
  const Judge judge(MakeSnapshot({{LayerKind::kBase, absl::StrCat(kHead, R"(
file_rules:
  - {paths: ["${NO:-${NEITHER:-${HOME}}/d}/x", "${WORKSPACE}/**", "~/t", "${PROJECT_ROOT}x"], decision: deny}
)"),
                                   "p.yaml"}},
                                 options));
  CHECK(judge.File(kRead, "/home/u/d/x") == "deny");
  CHECK(judge.File(kRead, "/srv/[a]*/y") == "deny");
  CHECK(judge.File(kRead, "/srv/ab/y") == "allow");
  CHECK(judge.File(kRead, "/home/u/t") == "deny");
  CHECK(Complaints("version: 1\nname: t\nfile_rules: [{paths: ['~root/x'], decision: deny}]\n")
            .find("another user's home") != std::string::npos);
}

}  // namespace agentmon::policy
