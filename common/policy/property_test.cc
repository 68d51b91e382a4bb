// Random policies and acts: the compiled snapshot, the slow reference and the kernel's view must agree.
//
//   AGENTMON_PROPERTY_CASES=1000000 common_policy_test "[property]"     a long run
//   AGENTMON_PROPERTY_SEED=N                                            again with a seed that was printed
#include <catch2/catch.hpp>

#include <cstdlib>
#include <random>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/policy/kernel_view.h"
#include "common/policy/testing/random.h"
#include "common/policy/testing/reference.h"
#include "common/policy/testing/snapshots.h"

namespace agentmon::policy {
namespace {

struct LayerText {
  LayerKind kind;
  std::string head;
  std::vector<std::pair<RuleKind, std::string>> rules;  // one line each

  std::string Text() const {
    std::string out = absl::StrCat("version: 1\nname: x\n", head);
    for (const char* key : {"file", "network", "command", "unix_socket", "signal"}) {
      std::string list;
      for (const auto& [rule_kind, line] : rules) {
        if (RuleKindName(rule_kind) == key) absl::StrAppend(&list, "  - ", line, "\n");
      }
      if (!list.empty()) absl::StrAppend(&out, key, "_rules:\n", list);
    }
    return out;
  }
};
using Layers = std::vector<LayerText>;

constexpr const char* kPathPatterns[] = {"/srv/**",       "/srv/a",         "/srv/a/**",
                                         "**/.env",       "**/*.pem",       "/srv/*/b",
                                         "${HOME}/**",    "${WORKSPACE}/*", "**",
                                         "/srv/**/b",     "**/secret/**",   "**/.env.*",
                                         "/home/u/?s/**", "/srv/a*",        "/h**e/**",
                                         "/srv/a/x.pem",  "**/s*t/*.c",     "${WORKSPACE}/secret/*.c"};
constexpr const char* kPathNames[] = {"/srv",
                                      "/srv/a",
                                      "/srv/a/b",
                                      "/srv/ab",
                                      "/srv/x/y/b",
                                      "/home/u",
                                      "/home/u/ws",
                                      "/home/u/ws/.env",
                                      "/a/.env.local",
                                      "/srv/a/x.pem",
                                      "/home/u/ws/secret",
                                      "/home/u/ws/secret/m.c",
                                      "/x/secret/deep/z",
                                      "/",
                                      "/srv/secret/.env",
                                      "/he",
                                      "/hxe/y"};
constexpr const char* kFileDecisions[] = {"allow", "allow", "deny",     "deny",
                                          "ask",   "audit", "redirect", "soft_delete"};
constexpr const char* kFileOps[] = {"read", "open", "write", "create", "delete", "rename",
                                    "link", "*",    "stat",  "chmod",  "mkdir"};
constexpr const char* kNames[] = {"a.example", "b.a.example", "c.b.a.example", "other.test", "example"};
constexpr const char* kNamePatterns[] = {"a.example", "*.example",   "**.example", "**",
                                         "*",         "b.*.example", "localhost",  "*.a.*"};
constexpr const char* kCidrs[] = {"10.0.0.0/8", "10.1.0.0/16", "10.1.2.3",     "0.0.0.0/0", "::/0",
                                  "fd00::/8",   "127.0.0.0/9", "10.128.0.0/9", "fd00::5"};
constexpr const char* kAddresses[] = {"10.1.2.3", "10.1.9.9", "10.200.0.1", "127.0.0.1", "127.200.0.1",
                                      "8.8.8.8",  "fd00::5",  "fd00::6",    "::1",       "2001:db8::1"};
constexpr const char* kPorts[] = {"22", "443", "\"400-500\"", "\"1-65535\""};
constexpr const char* kCommands[] = {"git", "rm", "sh", "env", "g*", "/usr/bin/git", "/opt/**", "**/rm", "*"};
constexpr const char* kPrograms[] = {"/usr/bin/git", "/opt/t/git",   "/usr/bin/rm", "/home/u/ws/rm",
                                     "/usr/bin/sh",  "/usr/bin/env", "/opt/x"};
constexpr const char* kExpressions[] = {"push", "^push", "^git push", "-rf?( |$)", "--force", "x$"};
constexpr const char* kArguments[] = {
    "push", "--force", "-rf", "x", "git push --force", "-c", "rm -rf x; git push", "rm", "git"};
constexpr const char* kSockets[] = {"/run/a.sock", "/run/d/b.sock", "@abs-1", "@other"};
constexpr const char* kSocketPatterns[] = {"/run/**", "/run/a.sock", "@abs-*",   "**",
                                           "/run/*",  "@*",          "**/b.sock"};
constexpr const char* kUnixOps[] = {"connect", "bind", "sendto", "*"};
constexpr const char* kSignals[] = {"@all", "@fatal", "TERM", "9", "@job"};
constexpr const char* kTargetsList[] = {"self", "session", "external", "system"};
constexpr const char* kDecisionsShort[] = {"allow", "deny", "ask", "audit"};
constexpr const char* kPosturesList[] = {"monitor", "warn", "enforce", "isolate"};
constexpr const char* kDefaultsList[] = {"allow", "deny", "ask"};

std::string RandomRule(Random& r, RuleKind kind) {
  switch (kind) {
    case RuleKind::kFile:
      return absl::StrCat("{paths: ", r.Some(kPathPatterns), ", operations: ", r.Some(kFileOps),
                          ", decision: ", r.Of(kFileDecisions), "}");
    case RuleKind::kUnix:
      return absl::StrCat("{paths: ", r.Some(kSocketPatterns), ", operations: ", r.Some(kUnixOps),
                          ", decision: ", r.Of(kDecisionsShort), "}");
    case RuleKind::kSignal:
      return absl::StrCat("{signals: ", r.Some(kSignals), ", target: {type: ", r.Of(kTargetsList),
                          "}, decision: ", r.Of(kDecisionsShort), "}");
    case RuleKind::kNetwork: {
      std::string out = absl::StrCat("{decision: ", r.Of(kDecisionsShort));
      if (r.OneIn(2)) absl::StrAppend(&out, ", domains: ", r.Some(kNamePatterns));
      if (r.OneIn(2)) absl::StrAppend(&out, ", cidrs: ", r.Some(kCidrs));
      if (r.OneIn(3)) absl::StrAppend(&out, ", ports: [", r.Of(kPorts), "]");
      if (r.OneIn(4)) absl::StrAppend(&out, ", protocol: ", r.OneIn(2) ? "tcp" : "udp");
      return out + "}";
    }
    case RuleKind::kCommand: {
      std::string out = absl::StrCat("{decision: ", r.Of(kDecisionsShort));
      if (!r.OneIn(6)) absl::StrAppend(&out, ", commands: ", r.Some(kCommands));
      if (r.OneIn(2)) absl::StrAppend(&out, ", args_patterns: ", r.Some(kExpressions));
      if (r.OneIn(4)) absl::StrAppend(&out, ", args: [\"", r.Of(kArguments), "\"]");
      if (r.OneIn(3)) out += ", anywhere: true";
      if (r.OneIn(5)) out += r.OneIn(2) ? ", context: [direct]" : ", context: {min_depth: 1, max_depth: 2}";
      return out + "}";
    }
  }
  return "";
}

Layers RandomLayers(Random& r) {
  Layers out;
  for (const LayerKind kind : {LayerKind::kFloor, LayerKind::kBase, LayerKind::kUser}) {
    if (kind != LayerKind::kBase && r.OneIn(2)) continue;
    LayerText& layer = out.emplace_back();
    layer.kind = kind;
    if (r.OneIn(4)) absl::StrAppend(&layer.head, "posture: ", r.Of(kPosturesList), "\n");
    if (kind == LayerKind::kBase && r.OneIn(2)) {
      absl::StrAppend(&layer.head, "defaults: {command: ", r.Of(kDefaultsList),
                      ", file_write: ", r.Of(kDefaultsList), ", file_read: ", r.Of(kDefaultsList),
                      ", network: ", r.Of(kDefaultsList), "}\n");
    }
    for (uint32_t n = r.Below(14); n > 0; --n) {
      const auto rule_kind = static_cast<RuleKind>(r.Below(kRuleKinds));
      layer.rules.emplace_back(rule_kind, RandomRule(r, rule_kind));
    }
  }
  return out;
}

// An act with its storage.
struct RandomAct {
  std::string a, b;
  std::vector<std::string> words;
  std::vector<absl::string_view> argv;
  Subject subject;
  std::string shown;
};

void MakeAct(Random& r, RandomAct& act) {
  switch (static_cast<RuleKind>(r.Below(kRuleKinds))) {
    case RuleKind::kFile: {
      act.a = r.Of(kPathNames);
      constexpr uint32_t kOps[] = {
          kOpen | kRead,         kWrite, kCreate, kDelete, kRename, kLink, kStat, kMkdir, kSymlink, kChmod,
          kOpen | kRead | kWrite};
      const uint32_t ops = kOps[r.Below(std::size(kOps))];
      if (ops & (kRename | kLink)) act.b = r.Of(kPathNames);
      act.subject = FileSubject(ops, act.a, act.b);
      act.shown = absl::StrCat(FileOpNames(ops), " ", act.a, " ", act.b);
      return;
    }
    case RuleKind::kUnix:
      act.a = r.Of(kSockets);
      act.subject = UnixSubject(1u << r.Below(4), act.a);
      act.shown = absl::StrCat("unix ", UnixOpNames(act.subject.operations), " ", act.a);
      return;
    case RuleKind::kNetwork:
      if (!r.OneIn(3)) act.a = r.Of(kNames);
      act.subject = ConnectSubject(*ParseAddress(r.Of(kAddresses)), r.OneIn(2) ? 443 : 22,
                                   r.OneIn(2) ? kTcp : kUdp, act.a);
      if (!act.a.empty() && r.OneIn(4)) act.subject = QuerySubject(act.a);
      act.shown = absl::StrCat("connect ", act.subject.address ? ToString(*act.subject.address) : "query",
                               " ", act.subject.port, " ", act.a);
      return;
    case RuleKind::kCommand:
      act.a = r.Of(kPrograms);
      act.words.push_back(std::string(ProgramName(act.a)));
      for (uint32_t n = r.Below(4); n > 0; --n) act.words.push_back(r.Of(kArguments));
      act.argv.assign(act.words.begin(), act.words.end());
      act.subject = ExecSubject(act.a, act.argv);
      act.subject.depth = static_cast<int>(r.Below(4));
      act.shown =
          absl::StrCat("exec ", act.a, " [", absl::StrJoin(act.words, "|"), "] depth ", act.subject.depth);
      return;
    case RuleKind::kSignal:
      act.subject = SignalSubject(1 + static_cast<int>(r.Below(20)), 1u << (r.Below(2) ? 0 : r.Below(8)));
      act.shown = absl::StrCat("signal ", act.subject.signal, " ", act.subject.target);
      return;
  }
}

struct Compiled {
  std::shared_ptr<const Snapshot> snapshot;
  KernelView kernel;
  std::vector<ReferenceLayer> reference;
};

Compiled CompileLayers(const Layers& layers) {
  Compiled out;
  std::vector<TestLayer> texts;
  for (const LayerText& layer : layers) texts.push_back({layer.kind, layer.Text(), "p.yaml"});
  CompileOptions options = TestOptions();
  options.builtin = BuiltinPaths();
  out.snapshot = MakeSnapshot(texts, options);
  out.kernel = MakeKernelView(*out.snapshot);
  for (const CompiledLayer& layer : out.snapshot->layers()) {
    if (layer.kind != LayerKind::kBuiltin) out.reference.push_back({layer.kind, layer.document});
  }
  return out;
}

uint64_t kernel_answers = 0, kernel_asked = 0;

// What the kernel's lists say of each layer, where they can say it, must be what the reference says.
std::string KernelDisagreement(const Compiled& c, const Subject& s, const ReferenceAnswer& want) {
  for (size_t i = 0; i < want.layers.size(); ++i) {
    const KernelLayer& layer = c.kernel.layers[i + 1];
    std::optional<Decision> got;
    if (s.kind == RuleKind::kFile &&
        (s.operations == kStat || s.operations == kWrite)) {  // nothing else implied
      got = KernelJudgePath(layer, layer.files, s.path, s.operations,
                            s.operations == kStat ? DefaultFor::kFileRead : DefaultFor::kFileWrite);
    } else if (s.kind == RuleKind::kUnix) {
      got = KernelJudgePath(layer, layer.unix_sockets, s.path, s.operations, DefaultFor::kUnixSocket);
    } else if (s.kind == RuleKind::kNetwork && s.network_op == NetworkOp::kConnect &&
               layer.posture != Posture::kIsolate) {
      got = KernelJudgeAddress(layer, Reached(*s.address), s.port, s.protocol);
    } else {
      continue;
    }
    ++(got ? kernel_answers : kernel_asked);
    // A name can only make a rule with a name match earlier: then the kernel had to ask.
    if (got && *got != want.layers[i]) {
      return absl::StrCat("kernel's layer ", i, ": ", DecisionName(*got),
                          ", reference: ", DecisionName(want.layers[i]));
    }
  }
  return "";
}

// Empty when all agree.
std::string Disagreement(const Layers& layers, uint64_t act_seed, std::string* shown = nullptr) {
  const Compiled c = CompileLayers(layers);
  Random r(act_seed);
  RandomAct act;
  MakeAct(r, act);
  if (shown != nullptr) *shown = act.shown;
  EvaluateOptions options;
  options.approver = r.OneIn(2);
  options.can_redirect_file = r.OneIn(2);
  const Verdict got = Evaluate(*c.snapshot, act.subject, options);
  if (got.layer == 0) return "";  // decided by a built-in rule, which the reference does not know
  const ReferenceAnswer want = ReferenceEvaluate(c.reference, act.subject, options);
  if (got.decision != want.decision || got.effective != want.effective) {
    return absl::StrCat("snapshot: ", DecisionName(got.decision), "/", DecisionName(got.effective),
                        ", reference: ", DecisionName(want.decision), "/", DecisionName(want.effective));
  }
  return KernelDisagreement(c, act.subject, want);
}

// Takes out layers and rules for as long as the disagreement stays.
Layers Shrink(Layers layers, uint64_t act_seed) {
  for (bool smaller = true; smaller;) {
    smaller = false;
    for (size_t i = 0; i < layers.size() && !smaller; ++i) {
      Layers less = layers;
      less.erase(less.begin() + i);
      if (layers[i].kind != LayerKind::kBase && !Disagreement(less, act_seed).empty())
        layers = less, smaller = true;
      for (size_t k = 0; !smaller && k < layers[i].rules.size(); ++k) {
        less = layers;
        less[i].rules.erase(less[i].rules.begin() + k);
        if (!Disagreement(less, act_seed).empty()) layers = less, smaller = true;
      }
      if (smaller || layers[i].head.empty()) continue;
      less = layers;
      less[i].head.clear();
      if (!Disagreement(less, act_seed).empty()) layers = less, smaller = true;
    }
  }
  return layers;
}

void RunCases(uint64_t seed, uint64_t cases) {
  Random r(seed);
  constexpr uint64_t kActs = 50;
  for (uint64_t done = 0; done < cases; done += kActs) {
    const Layers layers = RandomLayers(r);
    for (uint64_t n = 0; n < kActs; ++n) {
      const uint64_t act_seed = seed * 1000003 + done + n;
      if (Disagreement(layers, act_seed).empty()) continue;
      const Layers small = Shrink(layers, act_seed);
      std::string shown, text;
      const std::string what = Disagreement(small, act_seed, &shown);
      for (const LayerText& layer : small)
        absl::StrAppend(&text, "--- ", LayerKindName(layer.kind), "\n", layer.Text());
      FAIL("seed " << seed << ": " << shown << "\n" << what << "\n" << text);
    }
  }
}

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  uint64_t value;
  const char* text = std::getenv(name);
  return text != nullptr && absl::SimpleAtoi(text, &value) ? value : otherwise;
}

}  // namespace

TEST_CASE("snapshot, reference and kernel view agree on random policies and acts", "[property]") {
  const uint64_t cases = FromEnvironment("AGENTMON_PROPERTY_CASES", 20000);
  const uint64_t seed = FromEnvironment("AGENTMON_PROPERTY_SEED", std::random_device()());
  WARN("seed " << seed);
  RunCases(1, cases / 2);
  RunCases(seed, cases / 2);
  CHECK(kernel_answers > cases / 10);
  CHECK(kernel_asked > cases / 100);
}

TEST_CASE("a disagreement is found and made small") {
  // The reference does not know braces: a planted difference.
  Layers layers(1);
  layers[0].kind = LayerKind::kBase;
  layers[0].rules = {
      {RuleKind::kFile, "{paths: [\"/q\"], decision: deny}"},
      {RuleKind::kFile, "{paths: [\"/{srv,home,a,x,he,hxe}/**\", \"/{srv,home}\"], decision: deny}"},
      {RuleKind::kUnix, "{paths: [\"/run/**\"], decision: allow}"}};
  uint64_t act_seed = 0;
  while (act_seed < 1000 && Disagreement(layers, act_seed).empty()) ++act_seed;
  REQUIRE(act_seed < 1000);
  CHECK(Shrink(layers, act_seed)[0].rules.size() == 1);
}

}  // namespace agentmon::policy
