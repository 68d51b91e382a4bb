#include "daemon/policy/enforcement.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/policy/builtin.h"
#include "common/policy/evaluate.h"

namespace agentmon {
namespace {

using policy::RuleKind;
using How = v1::RuleEnforcement;

class Lister {
 public:
  Lister(const std::set<v1::Source>& sources, const MissingLimits& missing,
         std::vector<v1::RuleEnforcement>& out)
      : sources_(sources), missing_(missing), out_(out) {}

  void Layer(const policy::CompiledLayer& layer) {
    if (policy::Strictness(policy::UnderPosture(policy::Decision::kDeny, layer.posture)) <
        policy::Strictness(policy::Decision::kAsk)) {
      return;
    }
    layer_ = &layer;
    for (const policy::Rule& rule : layer.document->rules) {
      if (policy::Strictness(rule.decision) < policy::Strictness(policy::Decision::kRedirect)) continue;
      const auto [how, mechanism] = HowSeen(rule.kind, rule);
      Add(rule.name, rule.at, how, mechanism);
    }
    for (size_t i = 0; i < policy::kDefaults; ++i) {
      const auto what = static_cast<policy::DefaultFor>(i);
      if (policy::Strictness(layer.defaults[i]) < policy::Strictness(policy::Decision::kAsk)) continue;
      const auto [how, mechanism] = HowSeen(KindOf(what), policy::Rule());
      Add(absl::StrCat("default for ", policy::DefaultName(what)), {}, how, mechanism);
    }
    if (layer.env.given) Add("env", {}, How::NONE, "");
    const policy::SeccompRules& s = layer.document->seccomp;
    if (s.ptrace || s.bpf || s.kernel_modules || s.mount_namespace) Add("linux.seccomp", {}, How::NONE, "");
    Limits(layer.document->limits);
  }

 private:
  using Seen = std::pair<How::How, std::string>;

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
  // A command's timeout is about requests of a client: no session lacks it.
  void Limits(const policy::ResourceLimits& limits) {
    for (const std::string& key : GivenLimits(limits)) {
      const auto missing = missing_.find(key);
      if (missing != missing_.end()) {
        Add("resource_limits." + key, {}, How::NONE, "", missing->second);
      } else {
        Add("resource_limits." + key, {}, How::KERNEL, IsTimeout(key) ? "timer" : "cgroup");
      }
    }
  }
  Seen By(v1::Source source, const char* name) const {
    return sources_.count(source) != 0 ? Seen{How::OBSERVED, name} : Seen{How::NONE, ""};
  }
  Seen HowSeen(RuleKind kind, const policy::Rule& rule) const {
    switch (kind) {
      case RuleKind::kCommand:
        return By(v1::PROCESS, "process");
      case RuleKind::kUnix:
        return By(v1::NETWORK, "network");
      case RuleKind::kNetwork:
        // Which name led to an address is not known yet.
        return !rule.domains.empty() && rule.cidrs.empty() && !NamesAddresses(rule)
                   ? Seen{How::NONE, ""}
                   : By(v1::NETWORK, "network");
      case RuleKind::kFile: {
        if (OfPseudoFiles(rule)) return {How::NONE, ""};
        const Seen reads = By(v1::FANOTIFY, "fanotify"), writes = By(v1::NOTIFY, "notify");
        const bool only_reads = rule.operations != 0 && (rule.operations & policy::kWriteOps) == 0;
        return only_reads || writes.first == How::NONE ? reads : writes;
      }
      case RuleKind::kSignal:
        break;
    }
    return {How::NONE, ""};
  }
  // Reads of /proc and /sys raise no events: no marks are there.
  static bool OfPseudoFiles(const policy::Rule& rule) {
    return !rule.paths.empty() &&
           std::all_of(rule.paths.begin(), rule.paths.end(), [](const policy::Text& path) {
             return absl::StartsWith(path.value, "/proc/") || absl::StartsWith(path.value, "/sys/");
           });
  }
  static bool NamesAddresses(const policy::Rule& rule) {
    for (const policy::Text& domain : rule.domains) {
      if (domain.value == "**" || domain.value == "localhost") return true;
    }
    return false;
  }
  void Add(absl::string_view rule, policy::Position at, How::How how, const std::string& mechanism,
           const std::string& why = "") {
    v1::RuleEnforcement entry;
    entry.set_layer(layer_->name);
    entry.set_rule(std::string(rule));
    entry.set_file(layer_->document->file);
    if (at.line != 0) {
      entry.mutable_at()->set_line(at.line);
      entry.mutable_at()->set_column(at.column);
    }
    entry.set_how(how);
    entry.set_mechanism(mechanism);
    entry.set_why(why);
    out_.push_back(std::move(entry));
  }

  const std::set<v1::Source>& sources_;
  const MissingLimits& missing_;
  std::vector<v1::RuleEnforcement>& out_;
  const policy::CompiledLayer* layer_ = nullptr;
};

}  // namespace

std::vector<v1::RuleEnforcement> ListEnforcement(const policy::Snapshot& snapshot,
                                                 const std::set<v1::Source>& sources,
                                                 const MissingLimits& missing) {
  std::vector<v1::RuleEnforcement> out;
  Lister lister(sources, missing, out);
  for (const policy::CompiledLayer& layer : snapshot.layers()) lister.Layer(layer);
  return out;
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
