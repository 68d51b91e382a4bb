// Gensee Crate's linux.* keys, turned into rules.
#include "absl/strings/str_cat.h"
#include "common/policy/address.h"
#include "common/policy/loader.h"

namespace agentmon::policy {
namespace {

Rule MakeRule(RuleKind kind, absl::string_view name, Decision decision, Position at) {
  Rule rule;
  rule.kind = kind;
  rule.name = std::string(name);
  rule.decision = decision;
  rule.at = at;
  if (kind == RuleKind::kFile) rule.operations = kAllFileOps;
  return rule;
}

void LoadSeccomp(const YamlNode& node, LoadContext& context) {
  MapReader map(node, "linux.seccomp", context);
  bool enabled = true;
  SeccompRules rules;
  map.Bool("enabled", &enabled);
  map.Bool("deny_ptrace", &rules.ptrace);
  map.Bool("deny_bpf", &rules.bpf);
  map.Bool("deny_kernel_modules", &rules.kernel_modules);
  map.Bool("deny_mount_namespace_changes", &rules.mount_namespace);
  if (enabled) context.document->seccomp = rules;
  map.Finish();
}

void LoadFanotify(const YamlNode& node, LoadContext& context, std::vector<Rule>& first) {
  MapReader map(node, "linux.fanotify", context);
  std::vector<Text> paths;
  map.Texts("paths", &paths);
  map.Finish();
  for (size_t i = 0; i < paths.size(); ++i) {
    Rule rule = MakeRule(RuleKind::kFile, absl::StrCat("linux.fanotify.paths[", i, "]"), Decision::kDeny,
                         paths[i].at);
    rule.paths.push_back(paths[i]);
    first.push_back(std::move(rule));
  }
}

// One rule a destination: an address or a prefix, else a name.
void AddDestinations(const std::vector<Text>& list, absl::string_view key, Decision decision,
                     std::vector<Rule>& out) {
  for (size_t i = 0; i < list.size(); ++i) {
    Rule rule =
        MakeRule(RuleKind::kNetwork, absl::StrCat("linux.network.", key, "[", i, "]"), decision, list[i].at);
    std::string error;
    const bool address = ParsePrefix(list[i].value, error) || list[i].value.find('/') != std::string::npos;
    (address ? rule.cidrs : rule.domains).push_back(list[i]);
    out.push_back(std::move(rule));
  }
}

// `first` goes before the file's own network rules, `last` after them.
void LoadNetwork(const YamlNode& node, LoadContext& context, std::vector<Rule>& first,
                 std::vector<Rule>& last) {
  MapReader map(node, "linux.network", context);
  std::vector<Text> allow, deny;
  Text mode{map.Has("deny") ? "monitor" : "off", node.at};
  map.Word("mode", &mode);
  map.Texts("allow", &allow);
  map.Texts("deny", &deny);
  map.Finish();
  if (mode.value == "off") return;
  AddDestinations(deny, "deny", Decision::kDeny, first);
  if (mode.value == "allowlist") AddDestinations(allow, "allow", Decision::kAllow, last);
  if (mode.value != "monitor") {
    last.push_back(MakeRule(RuleKind::kNetwork, absl::StrCat("linux.network.mode=", mode.value),
                            Decision::kDeny, mode.at));
  }
}

}  // namespace

void LoadLinux(const YamlNode& node, LoadContext& context) {
  MapReader map(node, "linux", context);
  std::vector<Rule> first, last;
  if (const YamlNode* seccomp = map.Node("seccomp", ValueType::kSection)) LoadSeccomp(*seccomp, context);
  if (const YamlNode* fanotify = map.Node("fanotify", ValueType::kSection))
    LoadFanotify(*fanotify, context, first);
  if (const YamlNode* network = map.Node("network", ValueType::kSection))
    LoadNetwork(*network, context, first, last);
  map.Finish();
  std::vector<Rule>& rules = context.document->rules;
  for (const std::vector<Rule>* part : {&first, &last}) {
    for (const Rule& rule : *part) CheckRule(rule, context);
  }
  if (rules.empty()) {  // a file of Gensee's: what it does not name is let through
    for (Decision& d : context.document->defaults) d = d == Decision::kNone ? Decision::kAllow : d;
  }
  rules.insert(rules.begin(), first.begin(), first.end());
  rules.insert(rules.end(), last.begin(), last.end());
}

}  // namespace agentmon::policy
