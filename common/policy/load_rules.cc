// The rule lists of a policy file.
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/policy/loader.h"
#include "common/policy/signals.h"

namespace agentmon::policy {
namespace {

struct List {
  absl::string_view key, section;
  RuleKind kind;
};
constexpr List kLists[] = {{"file_rules", "file_rule", RuleKind::kFile},
                           {"network_rules", "network_rule", RuleKind::kNetwork},
                           {"command_rules", "command_rule", RuleKind::kCommand},
                           {"unix_socket_rules", "unix_socket_rule", RuleKind::kUnix},
                           {"signal_rules", "signal_rule", RuleKind::kSignal}};

void LoadCommon(MapReader& map, Rule& rule, LoadContext& context) {
  map.Text("name", &rule.name);
  map.Text("description", &rule.description);
  map.Text("message", &rule.message);
  map.Duration("timeout", &rule.timeout);
  Text word;
  if (map.Word("decision", &word)) {
    rule.decision = *ParseDecision(word.value);
  } else if (!map.Has("decision") && !map.incomplete()) {
    context.Error(rule.at, rule.name, "the rule has no decision", "decision: deny");
  }
}

void LoadOperations(MapReader& map, Rule& rule, uint32_t (*parse)(absl::string_view), uint32_t all) {
  std::vector<Text> words;
  map.Words("operations", &words);
  for (const Text& word : words) rule.operations |= parse(word.value);
  if (words.empty()) rule.operations = all;
}

void LoadFile(MapReader& map, Rule& rule, LoadContext& context) {
  map.Texts("paths", &rule.paths);
  LoadOperations(map, rule, ParseFileOp, kAllFileOps);
  map.Text("redirect_to", &rule.redirect.target);
  map.Bool("preserve_tree", &rule.redirect.preserve_tree);
  if (rule.paths.empty())
    context.Add(Severity::kWarning, rule.at, rule.name, "a rule without paths matches nothing");
}

void LoadUnix(MapReader& map, Rule& rule, LoadContext& context) {
  map.Texts("paths", &rule.paths);
  LoadOperations(map, rule, ParseUnixOp, kAllUnixOps);
  if (rule.paths.empty())
    context.Add(Severity::kWarning, rule.at, rule.name, "a rule without paths matches nothing");
}

bool ParsePort(absl::string_view text, int* out) {
  return absl::SimpleAtoi(text, out) && *out >= 1 && *out <= 65535;
}

void LoadPort(const YamlNode& node, Rule& rule, LoadContext& context) {
  const absl::string_view text = node.scalar;
  const size_t dash = text.find('-');
  int low = 0, high = 0;
  const bool good =
      node.kind == YamlNode::Kind::kScalar && ParsePort(text.substr(0, dash), &low) &&
      (dash == absl::string_view::npos ? (high = low, true) : ParsePort(text.substr(dash + 1), &high));
  if (!good)
    return context.Error(node.at, text, "not a port", "1 to 65535, or a range such as \"8000-8099\"");
  if (low > high)
    return context.Error(node.at, text, "a range that runs backwards", absl::StrCat(high, "-", low));
  rule.ports.push_back({static_cast<uint16_t>(low), static_cast<uint16_t>(high)});
}

void LoadNetwork(MapReader& map, Rule& rule, LoadContext& context) {
  map.Texts("domains", &rule.domains);
  map.Texts("cidrs", &rule.cidrs);
  if (const YamlNode* ports = map.Node("ports", ValueType::kPortList)) {
    if (ports->kind != YamlNode::Kind::kList) LoadPort(*ports, rule, context);
    for (const YamlNode* port : ports->items) LoadPort(*port, rule, context);
  }
  std::vector<Text> protocols;
  map.Words("protocol", &protocols);
  for (const Text& word : protocols) rule.protocols |= word.value == "tcp" ? kTcp : kUdp;
  map.Bool("verify_name", &rule.verify_name);
  if (rule.verify_name) context.document->unenforced.push_back({"network_rules.verify_name", rule.at});
}

void DepthRange(const YamlNode& node, Rule& rule, LoadContext& context) {
  for (const auto& [key, value] : node.entries) {
    int number = 0;
    const bool good =
        value->kind == YamlNode::Kind::kScalar && absl::SimpleAtoi(value->scalar, &number) && number >= -1;
    if (key->scalar != "min_depth" && key->scalar != "max_depth") {
      context.Error(key->at, key->scalar, "unknown key", "min_depth or max_depth");
    } else if (!good) {
      context.Error(value->at, value->scalar, "must be a whole number; -1 = no bound");
    } else {
      (key->scalar == "min_depth" ? rule.min_depth : rule.max_depth) = number;
    }
  }
  if (rule.min_depth < 0) rule.min_depth = 0;
  if (rule.max_depth >= 0 && rule.min_depth > rule.max_depth) {
    context.Error(node.at, "", "min_depth is greater than max_depth: the rule matches nothing");
  }
}

void LoadCommandContext(MapReader& map, Rule& rule, LoadContext& context) {
  const YamlNode* node = map.Node("context", ValueType::kContext);
  if (node == nullptr) return;
  if (node->kind == YamlNode::Kind::kMap) return DepthRange(*node, rule, context);
  bool direct = false, nested = false;
  const auto add = [&](const YamlNode& word) {
    if (word.scalar == "direct")
      direct = true;
    else if (word.scalar == "nested")
      nested = true;
    else
      context.Error(word.at, word.scalar, "unknown context",
                    "direct, nested or {min_depth: N, max_depth: N}");
  };
  if (node->kind == YamlNode::Kind::kScalar) add(*node);
  for (const YamlNode* item : node->items) add(*item);
  if (direct && !nested) rule.max_depth = 0;
  if (nested && !direct) rule.min_depth = 1;
}

void LoadCommand(MapReader& map, Rule& rule, LoadContext& context) {
  map.Texts("commands", &rule.commands);
  map.Texts("args_patterns", &rule.args_patterns);
  map.Texts("args", &rule.args);
  map.Bool("anywhere", &rule.anywhere);
  LoadCommandContext(map, rule, context);
  if (const YamlNode* node = map.Node("redirect_to", ValueType::kSection)) {
    MapReader redirect(*node, "command_redirect", context);
    redirect.Text("command", &rule.redirect.target);
    std::vector<Text> words;
    redirect.Texts("args", &words);
    for (const Text& w : words) rule.redirect.args.push_back(w.value);
    words.clear();
    redirect.Texts("args_append", &words);
    for (const Text& w : words) rule.redirect.args_append.push_back(w.value);
    redirect.TextMap("environment", &rule.redirect.environment);
    redirect.Finish();
  }
}

void LoadTarget(MapReader& map, Rule& rule, LoadContext& context) {
  const YamlNode* node = map.Node("target", ValueType::kSection);
  if (node == nullptr) {
    if (!map.incomplete())
      context.Error(rule.at, rule.name, "the rule has no target", "target: {type: external}");
    return;
  }
  MapReader target(*node, "signal_target", context);
  Text type;
  if (target.Word("type", &type)) rule.target = ParseSignalTarget(type.value);
  target.Text("pattern", &rule.target_pattern);
  int64_t low = 0, high = 0;
  target.Integer("min", &low);
  target.Integer("max", &high);
  rule.pid_min = static_cast<int>(std::min<int64_t>(low, INT32_MAX));
  rule.pid_max = static_cast<int>(std::min<int64_t>(high, INT32_MAX));
  if (rule.target == kTargetProcess && rule.target_pattern.value.empty()) {
    context.Error(node->at, "process", "a target by name needs pattern:");
  }
  if (rule.target == kTargetPidRange && (rule.pid_min > rule.pid_max || rule.pid_max == 0)) {
    context.Error(node->at, "pid_range", "needs min: and max:, min not above max");
  }
  if (!target.Has("type") && !target.incomplete())
    context.Error(node->at, "", "target has no type", "type: external");
  target.Finish();
}

void LoadSignal(MapReader& map, Rule& rule, LoadContext& context) {
  if (const YamlNode* node = map.Node("signals", ValueType::kSignalList)) {
    const auto add = [&](const YamlNode& word) {
      const uint64_t bits = ParseSignals(word.scalar);
      if (bits == 0)
        context.Error(word.at, word.scalar, "unknown signal",
                      "a name, 1 to 64, @all @fatal @job @reload @ignore");
      rule.signals |= bits;
    };
    if (node->kind == YamlNode::Kind::kScalar) add(*node);
    for (const YamlNode* item : node->items) add(*item);
  }
  if (rule.signals == 0) rule.signals = ~uint64_t{0};
  LoadTarget(map, rule, context);
  map.Text("redirect_to", &rule.redirect.target);
  if (!rule.redirect.target.value.empty() && ParseSignals(rule.redirect.target.value) == 0) {
    context.Error(rule.redirect.target.at, rule.redirect.target.value, "unknown signal");
  }
  Text fallback;
  map.Word("fallback", &fallback);
}

void LoadList(const List& list, const YamlNode& node, LoadContext& context) {
  if (node.kind != YamlNode::Kind::kList)
    return context.Error(node.at, node.scalar, absl::StrCat(list.key, " must be a list of rules"));
  for (size_t i = 0; i < node.items.size(); ++i) {
    const YamlNode& item = *node.items[i];
    MapReader map(item, list.section, context);
    if (item.kind != YamlNode::Kind::kMap) {
      if (item.IsNull()) context.Error(item.at, "", "an empty rule");
      continue;
    }
    Rule rule;
    rule.kind = list.kind;
    rule.at = item.at;
    LoadCommon(map, rule, context);
    if (rule.name.empty()) rule.name = absl::StrCat(list.key, "[", i, "]");
    switch (list.kind) {
      case RuleKind::kFile:
        LoadFile(map, rule, context);
        break;
      case RuleKind::kNetwork:
        LoadNetwork(map, rule, context);
        break;
      case RuleKind::kCommand:
        LoadCommand(map, rule, context);
        break;
      case RuleKind::kUnix:
        LoadUnix(map, rule, context);
        break;
      case RuleKind::kSignal:
        LoadSignal(map, rule, context);
        break;
    }
    map.Finish();
    CheckRule(rule, context);
    context.document->rules.push_back(std::move(rule));
  }
}

}  // namespace

void LoadRules(MapReader& top, LoadContext& context) {
  for (const List& list : kLists) {
    if (const YamlNode* node = top.Node(list.key, ValueType::kSectionList)) LoadList(list, *node, context);
  }
  if (const YamlNode* node = top.Node("linux", ValueType::kSection)) LoadLinux(*node, context);
}

}  // namespace agentmon::policy
