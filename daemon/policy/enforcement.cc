#include "daemon/policy/enforcement.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/policy/builtin.h"
#include "common/policy/evaluate.h"
#include "common/policy/kernel_view.h"
#include "common/policy/patterns.h"

namespace agentmon {
namespace {

constexpr char kLsmOpen[] = "lsm_open";  // daemon/enforce/shim_plan.h
constexpr char kLsmUnix[] = "lsm_unix";  // the same
constexpr char kLsmChange[] = "lsm_change";
constexpr char kLsmSignal[] = "lsm_signal";
constexpr char kUnix[] = "unix";
constexpr char kNetworkCalls[] = "network_calls";
constexpr char kProxy[] = "proxy";
constexpr char kLimits[] = "resource_limits.";  // the key follows

using policy::RuleKind;
using How = v1::RuleEnforcement;

class Lister {
 public:
  Lister(const policy::Snapshot& snapshot, const SessionMeans& means, const MissingLimits& missing,
         std::vector<v1::RuleEnforcement>& out)
      : means_(means), missing_(missing), out_(out) {
    denies_other_ = std::any_of(
        snapshot.layers().begin(), snapshot.layers().end(), [](const policy::CompiledLayer& layer) {
          return policy::Strictness(layer.defaults[static_cast<size_t>(policy::DefaultFor::kNetwork)]) >=
                     policy::Strictness(policy::Decision::kRedirect) &&
                 policy::UnderPosture(policy::Decision::kDeny, layer.posture) == policy::Decision::kDeny;
        });
    if (means.controls.count(kLsmOpen) == 0) return;
    const policy::KernelView view = policy::MakeKernelView(snapshot);
    in_part_ = policy::FileRulesInPart(view);
  }

  void Layer(const policy::CompiledLayer& layer, size_t number) {
    if (policy::Strictness(policy::UnderPosture(policy::Decision::kDeny, layer.posture)) <
        policy::Strictness(policy::Decision::kAsk)) {
      return;
    }
    layer_ = &layer;
    for (size_t i = 0; i < layer.document->rules.size(); ++i) {
      const policy::Rule& rule = layer.document->rules[i];
      if (policy::Strictness(rule.decision) < policy::Strictness(policy::Decision::kRedirect)) continue;
      whole_ =
          means_.controls.count(kLsmOpen) != 0 && in_part_.count({number, static_cast<uint32_t>(i)}) == 0;
      Add(rule.name, rule.at, HowStopped(rule.kind, rule));
    }
    whole_ = false;  // before a default stand all patterns that need user space
    for (size_t i = 0; i < policy::kDefaults; ++i) {
      const auto what = static_cast<policy::DefaultFor>(i);
      if (policy::Strictness(layer.defaults[i]) < policy::Strictness(policy::Decision::kAsk)) continue;
      policy::Rule rule;
      if (what == policy::DefaultFor::kFileRead) rule.operations = policy::kOpen | policy::kRead;
      if (what == policy::DefaultFor::kFileWrite) rule.operations = policy::kWriteOps;
      Add(absl::StrCat("default for ", policy::DefaultName(what)), {}, HowStopped(KindOf(what), rule));
    }
    if (layer.env.given) Add("env", {}, means_.armed ? Means{How::KERNEL, "shim", ""} : Means());
    Calls(layer.document->seccomp);
    Limits(layer.document->limits);
  }

 private:
  struct Means {
    How::How how = How::NONE;
    std::string mechanism, why;
  };

  static RuleKind KindOf(policy::DefaultFor what) {
    switch (what) {
      case policy::DefaultFor::kCommand:
        return RuleKind::kCommand;
      case policy::DefaultFor::kNetwork:
        return RuleKind::kNetwork;
      case policy::DefaultFor::kUnixSocket:
        return RuleKind::kUnix;
      case policy::DefaultFor::kSignal:
        return RuleKind::kSignal;
      case policy::DefaultFor::kFileRead:
      case policy::DefaultFor::kFileWrite:
        break;
    }
    return RuleKind::kFile;
  }
  void Calls(const policy::SeccompRules& wanted) {
    const std::pair<bool, const char*> families[] = {{wanted.ptrace, "ptrace"},
                                                     {wanted.bpf, "bpf"},
                                                     {wanted.kernel_modules, "kernel_modules"},
                                                     {wanted.mount_namespace, "namespace"}};
    for (const auto& [refused, family] : families) {
      if (!refused) continue;
      const bool holds = means_.controls.count(absl::StrCat("call.", family)) != 0;
      Add(absl::StrCat("linux.seccomp: ", family), {}, holds ? Means{How::KERNEL, "seccomp", ""} : Means());
    }
  }
  // A command's timeout is about requests of a client: no session lacks it.
  void Limits(const policy::ResourceLimits& limits) {
    for (const std::string& key : GivenLimits(limits)) {
      const auto missing = missing_.find(key);
      if (missing != missing_.end()) {
        Add(kLimits + key, {}, {How::NONE, "", missing->second});
      } else {
        Add(kLimits + key, {}, {How::KERNEL, IsTimeout(key) ? "timer" : "cgroup", ""});
      }
    }
  }
  bool Has(v1::Source source) const { return means_.sources.count(source) != 0; }
  Means Observed(v1::Source source, const char* name) const {
    return Has(source) ? Means{How::OBSERVED, name, ""} : Means();
  }
  Means HowStopped(RuleKind kind, const policy::Rule& rule) const {
    switch (kind) {
      case RuleKind::kCommand:
        if (means_.armed && Has(v1::FANOTIFY) && Has(v1::NOTIFY)) {
          const UnmarkedMount* mount = UnmarkedBelow(ProgramPaths(rule));
          if (mount != nullptr) return NotAsked("programs", *mount);
          return {How::KERNEL, "fanotify, notify", ""};
        }
        if (means_.armed && Has(v1::NOTIFY) && !Has(v1::PROCESS))
          return {
              How::ASKED, "notify",
              "before a program is started; what another thread writes into its arguments meanwhile is not "
              "seen"};
        return Observed(v1::PROCESS, "process");
      case RuleKind::kUnix:
        return HowSocketsAre(rule);
      case RuleKind::kNetwork:
        return HowConnectsAre(rule);
      case RuleKind::kFile:
        return HowFilesAre(rule);
      case RuleKind::kSignal:
        return HowSignalsAre(rule);
    }
    return {};
  }
  Means HowSocketsAre(const policy::Rule& rule) const {
    const uint32_t operations = rule.operations == 0 ? policy::kAllUnixOps : rule.operations;
    if ((operations & policy::kJudgedUnixOps) == 0)
      return {How::NONE, "", "nothing is asked before a socket is bound or listens"};
    if (means_.controls.count(kLsmUnix) != 0) return {How::KERNEL, "bpf_lsm", ""};
    if (means_.controls.count(kUnix) != 0) return {How::KERNEL, "notify, cgroup_bpf", ""};
    return Observed(v1::NETWORK, "network");
  }
  // The kernel keeps signals inside of the session, or lets them out; it asks about none.
  Means HowSignalsAre(const policy::Rule& rule) const {
    constexpr uint32_t kOut =
        policy::kTargetExternal | policy::kTargetSystem | policy::kTargetUser | policy::kTargetParent;
    const bool scope = means_.controls.count("signal") != 0, lsm = means_.controls.count(kLsmSignal) != 0;
    if (!scope && !lsm) return {};
    const uint32_t out = scope ? kOut & ~policy::kTargetParent : kOut;
    if (rule.target == 0 || (rule.target & ~out) == 0)
      return {How::KERNEL, scope ? "landlock" : "bpf_lsm", ""};
    return {How::NONE, "", "only signals out of the session are stopped"};
  }
  // Reads are asked by fanotify, which speaks of files and directories only and of no look at a name;
  // everything else goes through the broker.
  Means HowFilesAre(const policy::Rule& rule) const {
    const uint32_t operations = rule.operations == 0 ? policy::kAllFileOps : rule.operations;
    const bool reads = (operations & (policy::kOpen | policy::kRead | policy::kList)) != 0;
    const bool writes = (operations & policy::kWriteOps) != 0;
    // A read that was tried and went through is not asked, whatever is marked.
    const bool asks_reads = Has(v1::FANOTIFY) && means_.controls.count("file_read") != 0;
    // Of changes this is tried where no broker is in front.
    const bool judges_writes = means_.controls.count(kLsmChange) != 0;
    if (whole_ && (reads || writes) && (!writes || judges_writes) && !SomeBelow(rule, {"/dev/"}))
      return {How::KERNEL, asks_reads ? "bpf_lsm, fanotify" : "bpf_lsm", ""};
    if (SomeBelow(rule, {"/proc/", "/sys/"}))
      return {How::NONE, "", "the kernel asks nobody about files of procfs and sysfs"};
    if (!reads && !writes) return {How::NONE, "", "nothing is asked before a name is looked at"};
    if (reads && asks_reads) {
      const UnmarkedMount* mount = UnmarkedBelow(rule.paths);
      if (mount != nullptr) return NotAsked("reads", *mount);
    }
    const bool devices = SomeBelow(rule, {"/dev/"});
    if (means_.armed && (!reads || asks_reads) && (!writes || Has(v1::NOTIFY))) {
      if (devices)
        return {How::ASKED, "notify", "of devices, opens for writing only, by the name that was asked"};
      // An open that was judged goes on, and only the second look is at what it reaches.
      if (!Has(v1::FANOTIFY) && (operations & (policy::kWrite | policy::kCreate)) != 0)
        return {
            How::ASKED, "broker",
            "opens are judged by the name that was asked; what another thread puts there meanwhile is not "
            "seen"};
      if (!reads) return {How::KERNEL, "broker", ""};
      return {How::KERNEL,
              absl::StrCat(means_.controls.count(kLsmOpen) != 0 ? "bpf_lsm, " : "", "fanotify",
                           writes ? ", broker" : ""),
              ""};
    }
    const Means by_reads = Observed(v1::FANOTIFY, "fanotify"), by_writes = Observed(v1::NOTIFY, "notify");
    return !writes || by_writes.how == How::NONE ? by_reads : by_writes;
  }
  static Means NotAsked(absl::string_view what, const UnmarkedMount& mount) {
    return {How::NONE, "",
            absl::StrCat(what, " below ", mount.mount_point, " (", mount.fs_type,
                         ") are not asked: ", mount.why)};
  }
  // Of a rule on commands; none = it may speak of programs anywhere. A name without a path counts in
  // directories that only root can write to.
  static std::vector<policy::Text> ProgramPaths(const policy::Rule& rule) {
    if (rule.anywhere) return {};
    return rule.commands;
  }
  // The first mount that is not marked of which something in that list may speak.
  const UnmarkedMount* UnmarkedBelow(const std::vector<policy::Text>& paths) const {
    const auto found =
        std::find_if(means_.unmarked.begin(), means_.unmarked.end(),
                     [&](const UnmarkedMount& mount) { return ReachInto(paths, mount.mount_point); });
    return found == means_.unmarked.end() ? nullptr : &*found;
  }
  // Whether one may speak of something at or below that directory, by its literal beginning; no paths are
  // all.
  static bool ReachInto(const std::vector<policy::Text>& paths, absl::string_view directory) {
    const std::string below = absl::StrCat(directory == "/" ? "" : directory, "/");
    return paths.empty() || std::any_of(paths.begin(), paths.end(), [&](const policy::Text& path) {
             const absl::string_view value = path.value;
             const size_t pattern = value.find_first_of("*?[{");
             if (value == directory || absl::StartsWith(value, below)) return true;
             return pattern != absl::string_view::npos && absl::StartsWith(below, value.substr(0, pattern));
           });
  }
  // What cannot be said of all paths of a rule is not said of the rule.
  static bool SomeBelow(const policy::Rule& rule, std::initializer_list<absl::string_view> directories) {
    return std::any_of(rule.paths.begin(), rule.paths.end(), [&](const policy::Text& path) {
      return std::any_of(directories.begin(), directories.end(), [&](absl::string_view directory) {
        return absl::StartsWith(path.value, directory) && !absl::StartsWith(path.value, "/dev/shm/");
      });
    });
  }
  // The kernel knows addresses; which name led to one it knows of the resolver.
  Means HowConnectsAre(const policy::Rule& rule) const {
    policy::DomainPattern pattern;
    for (const policy::Text& domain : rule.domains) {
      policy::GlobError error;
      if (!policy::ParseDomainPattern(domain.value, pattern, error)) return {};
    }
    const bool by_name = !pattern.any && !pattern.names.empty();
    const bool by_calls = means_.controls.count(kNetworkCalls) != 0;
    const bool by_programs = means_.controls.count("network") != 0;
    const bool direct = by_calls || by_programs;
    if (means_.controls.count(kProxy) != 0 && (by_name || !direct)) {
      if (direct && denies_other_)
        return {How::ASKED, kProxy,
                "of what uses the session's proxy; the others are judged by their address"};
      return {How::NONE, kProxy,
              "it holds for what uses the session's proxy, and for nothing that connects by itself"};
    }
    if (by_name && means_.controls.count("names") == 0)
      return {How::NONE, "", "only addresses are judged, and which name led to one is not known"};
    if (by_programs) return {How::KERNEL, by_name ? "cgroup_bpf, resolver" : "cgroup_bpf", ""};
    if (by_calls) return {How::KERNEL, "seccomp", ""};
    return Observed(v1::NETWORK, "network");
  }
  void Add(absl::string_view rule, policy::Position at, const Means& means) {
    v1::RuleEnforcement entry;
    entry.set_layer(layer_->name);
    entry.set_rule(std::string(rule));
    entry.set_file(layer_->document->file);
    if (at.line != 0) {
      entry.mutable_at()->set_line(at.line);
      entry.mutable_at()->set_column(at.column);
    }
    entry.set_how(means.how);
    entry.set_mechanism(means.mechanism);
    entry.set_why(means.why);
    out_.push_back(std::move(entry));
  }

  const SessionMeans& means_;
  const MissingLimits& missing_;
  std::vector<v1::RuleEnforcement>& out_;
  const policy::CompiledLayer* layer_ = nullptr;
  std::set<std::pair<size_t, uint32_t>> in_part_;  // file rules
  bool denies_other_ = false;                      // addresses of which no rule speaks
  bool whole_ = false;  // the rule at hand is one that the kernel decides by itself, devices excepted
};

}  // namespace

std::vector<v1::RuleEnforcement> ListEnforcement(const policy::Snapshot& snapshot, const SessionMeans& means,
                                                 const MissingLimits& missing) {
  std::vector<v1::RuleEnforcement> out;
  Lister lister(snapshot, means, missing, out);
  for (size_t i = 0; i < snapshot.layers().size(); ++i) lister.Layer(snapshot.layers()[i], i);
  return out;
}

namespace {

// A default that the file does not name: it is listed, but nobody has asked for it to be enforced.
bool IsUnsaid(const policy::CompiledLayer& layer, absl::string_view rule) {
  absl::string_view name = rule;
  if (!absl::ConsumePrefix(&name, "default for ")) return false;
  for (size_t i = 0; i < policy::kDefaults; ++i) {
    if (name == policy::DefaultName(static_cast<policy::DefaultFor>(i)))
      return layer.document->defaults[i] == policy::Decision::kNone;
  }
  return false;
}

}  // namespace

std::string FindUnenforceable(const policy::Snapshot& snapshot,
                              const std::vector<v1::RuleEnforcement>& rules) {
  std::vector<std::string> found;
  size_t count = 0;
  for (const policy::CompiledLayer& layer : snapshot.layers()) {
    if (layer.kind == policy::LayerKind::kBuiltin || layer.enforcement == policy::Enforcement::kBestEffort)
      continue;
    for (const v1::RuleEnforcement& rule : rules) {
      if (rule.layer() != layer.name || rule.how() == How::ASKED || rule.how() == How::KERNEL) continue;
      if (IsUnsaid(layer, rule.rule())) continue;
      // What becomes of a session without its limits, limits.on_unavailable has said when it was made.
      if (absl::StartsWith(rule.rule(), kLimits)) continue;
      if (++count <= 3)
        found.push_back(absl::StrCat(rule.rule(), " (", rule.file(),
                                     rule.at().line() == 0 ? "" : absl::StrCat(":", rule.at().line()), ")"));
    }
  }
  if (count == 0) return "";
  return absl::StrCat(absl::StrJoin(found, ", "), count > 3 ? absl::StrCat(" and ", count - 3, " more") : "");
}

Gap GapOf(const std::vector<v1::RuleEnforcement>& rules) {
  Gap gap;
  for (const v1::RuleEnforcement& rule : rules) {
    if (rule.file() == policy::kBuiltinFile) continue;  // in every session, whatever its policy
    gap.observed += rule.how() == How::OBSERVED;
    gap.none += rule.how() == How::NONE;
  }
  return gap;
}

}  // namespace agentmon
