#include "daemon/enforce/shim_plan.h"

#include <signal.h>

#include <algorithm>
#include <random>
#include <set>
#include <string>

#include <catch2/catch.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/kernel/landlock.h"
#include "common/policy/env_names.h"
#include "common/policy/testing/snapshots.h"
#include "shim/stage/capabilities.h"
#include "shim/stage/environment.h"

namespace agentmon {
namespace {

using policy::LayerKind;
using policy::MakeBase;
using policy::MakeSnapshot;

constexpr char kHead[] = "version: 1\nname: x\n";

ShimPlanOptions Modern() {
  ShimPlanOptions options;
  options.landlock_abi = kLandlockScopeAbi;
  return options;
}

bool Refuses(const v1::ShimPlan& plan, absl::string_view family) {
  return std::find(plan.refuse_calls().begin(), plan.refuse_calls().end(), family) !=
         plan.refuse_calls().end();
}

EnvironmentFilter FilterOf(const v1::ShimPlan& plan) {
  auto filter = EnvironmentFilter::Parse({plan.unset_environment().begin(), plan.unset_environment().end()});
  REQUIRE(filter.ok());
  return *std::move(filter);
}

}  // namespace

TEST_CASE("a policy that only records changes nothing but what it injects") {
  const v1::ShimPlan plan =
      MakeShimPlan(*MakeBase("posture: monitor\nenv_policy: {deny: [A]}\nenv_inject: {B: c}\n"
                             "linux: {seccomp: {deny_ptrace: true}}\n"),
                   {.fanotify_backend = true, .root = true, .lsm_backend = true, .landlock_abi = 7});
  CHECK(plan.unset_environment().empty());
  REQUIRE(plan.set_environment_size() == 1);
  CHECK(plan.set_environment(0).name() == "B");
  CHECK(plan.set_environment(0).value() == "c");
  v1::ShimPlan rest = plan;
  rest.clear_set_environment();
  CHECK(rest.ByteSizeLong() == 0);
}

TEST_CASE("a floor that stops things counts below a base that only records, and each layer by itself") {
  const auto snapshot = MakeSnapshot(
      {{LayerKind::kFloor, absl::StrCat(kHead, "posture: enforce\nlinux: {seccomp: {deny_ptrace: true}}\n"),
        "f"},
       {LayerKind::kBase,
        absl::StrCat(kHead, "posture: monitor\nlinux: {seccomp: {deny_mount_namespace_changes: true}}\n"),
        "b"}});
  const v1::ShimPlan plan = MakeShimPlan(*snapshot, Modern());
  CHECK(Refuses(plan, "ptrace"));
  CHECK(Refuses(plan, "bpf"));
  CHECK_FALSE(Refuses(plan, "namespace"));
  CHECK(FilterOf(plan).Keeps("LD_PRELOAD"));  // the base's, which only records
}

TEST_CASE("some families are refused whatever the policy says, others by it or by the backend") {
  const v1::ShimPlan plain = MakeShimPlan(*MakeBase(""), Modern());
  for (const char* family : {"bpf", "kernel_modules", "io_uring", "perf", "keyring", "handles", "personality",
                             "terminal", "sockets", "system"}) {
    CHECK(Refuses(plain, family));
  }
  CHECK_FALSE(Refuses(plain, "ptrace"));
  CHECK_FALSE(Refuses(plain, "namespace"));
  ShimPlanOptions fanotify = Modern();
  fanotify.fanotify_backend = true;
  CHECK(Refuses(MakeShimPlan(*MakeBase(""), fanotify), "namespace"));
  const auto strict = MakeBase("linux: {seccomp: {deny_ptrace: true, deny_mount_namespace_changes: true}}\n");
  CHECK(Refuses(MakeShimPlan(*strict, Modern()), "ptrace"));
  CHECK(Refuses(MakeShimPlan(*strict, Modern()), "namespace"));
}

TEST_CASE("signals are scoped where the policy keeps them in and this kernel can") {
  CHECK(MakeShimPlan(*MakeBase(""), Modern()).landlock_scope());
  ShimPlanOptions old = Modern();
  old.landlock_abi = kLandlockScopeAbi - 1;
  const v1::ShimPlan plan = MakeShimPlan(*MakeBase(""), old);
  CHECK_FALSE(plan.landlock_scope());
  for (const v1::Canary& canary : plan.canaries()) CHECK(canary.act() == v1::Canary::CALL);
  const auto open = MakeBase("defaults: {signal: allow}\n");
  CHECK_FALSE(MakeShimPlan(*open, Modern()).landlock_scope());
  ShimPlanOptions fanotify = Modern();
  fanotify.fanotify_backend = true;
  CHECK(MakeShimPlan(*open, fanotify).landlock_scope());
}

TEST_CASE("every refused family and the scope have a canary that EPERM proves") {
  const v1::ShimPlan plan = MakeShimPlan(*MakeBase(""), Modern());
  CHECK(plan.canaries_size() == plan.refuse_calls_size() + 1);
  for (const v1::Canary& canary : plan.canaries()) {
    REQUIRE(canary.errors_size() == 1);
    CHECK(canary.errors(0) == EPERM);
  }
}

TEST_CASE("unix sockets are asked about where the policy stops some and this host can") {
  constexpr char kOpen[] = "defaults: {unix_socket: allow, network: allow}\n";
  constexpr char kRule[] = "unix_socket_rules: [{paths: [/x], operations: [%s], decision: deny}]\n";
  const std::string connect = absl::StrCat(kOpen, absl::StrReplaceAll(kRule, {{"%s", "connect"}}));
  const std::string bind = absl::StrCat(kOpen, absl::StrReplaceAll(kRule, {{"%s", "bind"}}));
  ShimPlanOptions options = Modern();
  CHECK_FALSE(MakeShimPlan(*MakeBase(connect), options).ask_unix());
  options.unix_backend = true;
  options.unix_canaries = {"/c", "@c"};
  CHECK_FALSE(MakeShimPlan(*MakeBase(kOpen), options).ask_unix());
  CHECK_FALSE(MakeShimPlan(*MakeBase(bind), options).ask_unix());
  CHECK(MakeShimPlan(*MakeBase(""), options).ask_unix());  // the default denies
  // Services that answer for names beside DNS.
  CHECK(MakeShimPlan(*MakeBase("defaults: {unix_socket: allow}\n"), options).ask_unix());
  const v1::ShimPlan plan = MakeShimPlan(*MakeBase(connect), options);
  CHECK(plan.ask_unix());
  std::vector<std::string> subjects;
  for (const v1::Canary& canary : plan.canaries()) {
    if (canary.control() != kUnixControl) continue;
    subjects.push_back(canary.subject());
    REQUIRE(canary.errors_size() == 1);
    CHECK(canary.errors(0) == EACCES);
  }
  CHECK(subjects == std::vector<std::string>{"/c", "@c", "@c-datagrams"});
}

TEST_CASE("what security modules stop is tried with an act that does nothing") {
  ShimPlanOptions options = Modern();
  options.landlock_abi = kLandlockScopeAbi - 1;
  options.lsm_backend = options.lsm_sockets = options.lsm_signals = true;
  options.unix_canaries = {"/run/agentmon/canary/socket", "@c"};
  const auto tried = [&](absl::string_view rules) {
    std::vector<std::string> acts;
    const v1::ShimPlan plan = MakeShimPlan(*MakeBase(rules), options);
    for (const v1::Canary& canary : plan.canaries()) {
      if (absl::StartsWith(canary.control(), "lsm_"))
        acts.push_back(absl::StrCat(canary.control(), " ", canary.subject(), " ", canary.errors(0)));
    }
    return acts;
  };
  const std::string socket = absl::StrCat("lsm_unix /run/agentmon/canary/socket ", EACCES);
  CHECK(tried("") == std::vector<std::string>{socket, absl::StrCat("lsm_signal ", SIGURG, " ", EPERM)});
  CHECK(tried("defaults: {signal: allow}\n") == std::vector<std::string>{socket});
  CHECK(tried("defaults: {signal: allow}\n"
              "signal_rules:\n  - {name: a, signals: [CONT], target: {type: external}, decision: deny}\n") ==
        std::vector<std::string>{socket, absl::StrCat("lsm_signal ", SIGCONT, " ", EPERM)});
  options.landlock_abi = kLandlockScopeAbi;  // the scope answers first
  CHECK(tried("") == std::vector<std::string>{socket});
}

TEST_CASE("where set-uid programs are to work nothing filters, and what holds all the same is tried") {
  ShimPlanOptions options = Modern();
  options.network_backend = options.lsm_backend = options.lsm_sockets = true;
  options.unix_canaries.path = "/run/x/socket";
  const v1::ShimPlan confined = MakeShimPlan(*MakeBase(""), options);
  CHECK_FALSE(confined.keep_privileges());
  CHECK(confined.landlock_scope());
  CHECK(confined.refuse_calls_size() > 0);
  options.keep_privileges = true;
  const v1::ShimPlan plan = MakeShimPlan(*MakeBase(""), options);
  CHECK(plan.keep_privileges());
  CHECK_FALSE(plan.landlock_scope());
  CHECK_FALSE(plan.ask_exec());
  CHECK_FALSE(plan.ask_unix());
  CHECK(plan.refuse_calls().empty());
  CHECK(plan.unset_environment_size() == confined.unset_environment_size());
  std::set<std::string> tried;
  for (const v1::Canary& canary : plan.canaries()) tried.insert(canary.control());
  CHECK(tried == std::set<std::string>({"network", kLsmUnixControl}));
  CHECK(MakeShimPlan(*MakeBase("posture: monitor\n"), options).keep_privileges());
}

TEST_CASE("root keeps what files need and nothing that undoes us, others keep nothing") {
  ShimPlanOptions root = Modern();
  root.root = true;
  const v1::ShimPlan plan = MakeShimPlan(*MakeBase(""), root);
  CHECK(plan.drop_capabilities());
  const auto kept = ParseCapabilities({plan.keep_capabilities().begin(), plan.keep_capabilities().end()});
  REQUIRE(kept.ok());
  const auto undo = ParseCapabilities(
      {"CAP_SYS_ADMIN", "CAP_SYS_PTRACE", "CAP_SYS_MODULE", "CAP_BPF", "CAP_PERFMON", "CAP_NET_ADMIN",
       "CAP_NET_RAW", "CAP_MKNOD", "CAP_DAC_READ_SEARCH", "CAP_SYS_RAWIO", "CAP_SYS_BOOT", "CAP_SYSLOG",
       "CAP_AUDIT_CONTROL", "CAP_MAC_ADMIN", "CAP_MAC_OVERRIDE", "CAP_CHECKPOINT_RESTORE", "CAP_SETPCAP"});
  CHECK((*kept & *undo) == 0);
  CHECK(MakeShimPlan(*MakeBase(""), Modern()).keep_capabilities().empty());
}

TEST_CASE("enforcement is required where a layer that stops things requires it") {
  CHECK(RequiresEnforcement(*MakeBase("")));
  CHECK_FALSE(RequiresEnforcement(*MakeBase("enforcement: best_effort\n")));
  CHECK_FALSE(RequiresEnforcement(*MakeBase("posture: monitor\n")));
}

TEST_CASE("the strictest bound on the environment counts") {
  const auto snapshot = MakeSnapshot(
      {{LayerKind::kFloor, absl::StrCat(kHead, "env_policy: {max_keys: 50}\n"), "f"},
       {LayerKind::kBase, absl::StrCat(kHead, "env_policy: {max_keys: 3, max_bytes: 900}\n"), "b"}});
  const EnvironmentFilter filter = FilterOf(MakeShimPlan(*snapshot, Modern()));
  CHECK(filter.CheckSize({"A=", "B=", "C="}).ok());
  CHECK_FALSE(filter.CheckSize({"A=", "B=", "C=", "D="}).ok());
  CHECK_FALSE(filter.CheckSize({std::string(900, 'x')}).ok());
}

TEST_CASE("the plan's filter and the snapshot agree on every variable [property]") {
  std::mt19937 random(11);
  constexpr const char* kPatterns[] = {"A*",    "*_TOKEN", "PATH",      "LC_*", "*",
                                       "LD_*",  "?X",      "{A,B}_KEY", "!A",   "=max_keys",
                                       "[AB]*", "\\*x",    "GITHUB_*",  "HOME"};
  std::vector<std::string> names = {
      "PATH",  "HOME",       "AGENTMON_SESSION", "AGENTMON_SOCKET", "AGENTMON_X", "A",         "AX",
      "A_KEY", "B_KEY",      "A_TOKEN",          "LC_TIME",         "!A",         "=max_keys", "*x",
      "yx",    "LD_BIND_NOW"};
  for (const absl::string_view name : policy::SecretEnvPatterns()) names.emplace_back(name);
  const auto list = [&] {
    std::string out;
    for (uint32_t n = random() % 4; n > 0; --n) {
      absl::StrAppend(&out, out.empty() ? "" : ", ", "'", kPatterns[random() % std::size(kPatterns)], "'");
    }
    return absl::StrCat("[", out, "]");
  };
  for (int i = 0; i < 400; ++i) {
    std::vector<policy::TestLayer> layers;
    for (const LayerKind kind :
         {LayerKind::kFloor, LayerKind::kBase, LayerKind::kUser, LayerKind::kSession}) {
      if (kind != LayerKind::kBase && random() % 2 == 0) continue;
      std::string text = kHead;
      if (random() % 4 != 0)
        absl::StrAppend(&text, "env_policy: {allow: ", list(), ", deny: ", list(), "}\n");
      layers.push_back({kind, text, "f"});
    }
    const auto snapshot = MakeSnapshot(layers);
    const EnvironmentFilter filter = FilterOf(MakeShimPlan(*snapshot, Modern()));
    for (const std::string& name : names) {
      if (filter.Keeps(name) == snapshot->EnvAllowed(name)) continue;
      std::string all;
      for (const policy::TestLayer& layer : layers) absl::StrAppend(&all, layer.text, "--\n");
      FAIL(name << " is " << (filter.Keeps(name) ? "kept" : "unset") << " under\n" << all);
    }
  }
}

}  // namespace agentmon
