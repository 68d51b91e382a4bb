// Everything of a policy file but its rules.
#include "absl/strings/str_cat.h"
#include "common/policy/glob.h"
#include "common/policy/loader.h"

namespace agentmon::policy {
namespace {

constexpr int64_t kMostMbps = 1'000'000;

void LoadWords(MapReader& top, LoadContext& context) {
  Document& document = *context.document;
  Text word;
  top.Text("description", &document.description);
  if (top.Word("posture", &word)) document.posture = *ParsePosture(word.value);
  if (top.Word("enforcement", &word)) {
    document.enforcement = word.value == "required" ? Enforcement::kRequired : Enforcement::kBestEffort;
  }
  if (top.Word("nested", &word)) document.nested_allowed = word.value == "allow";
  if (top.Word("on_daemon_loss", &word)) document.on_daemon_loss = word.value;
  if (bool allowed = false; top.Bool("allow_privileges", &allowed)) document.allow_privileges = allowed;
  if (top.Word("record", &word)) document.audit.record_every = word.value == "every";
}

void LoadDefaults(MapReader& top, LoadContext& context) {
  const YamlNode* node = top.Node("defaults", ValueType::kSection);
  if (node == nullptr) return;
  MapReader map(*node, "defaults", context);
  Text word;
  for (size_t i = 0; i < kDefaults; ++i) {
    if (map.Word(DefaultName(static_cast<DefaultFor>(i)), &word)) {
      context.document->defaults[i] = *ParseDecision(word.value);
    }
  }
  map.Finish();
}

void LoadLimits(MapReader& top, LoadContext& context) {
  const YamlNode* node = top.Node("resource_limits", ValueType::kSection);
  if (node == nullptr) return;
  MapReader map(*node, "resource_limits", context);
  ResourceLimits& limits = context.document->limits;
  map.Integer("max_memory_mb", &limits.max_memory_mb);
  map.Integer("memory_swap_max_mb", &limits.memory_swap_max_mb);
  map.Integer("cpu_quota_percent", &limits.cpu_quota_percent);
  map.Integer("disk_read_bps_max", &limits.disk_read_bps_max);
  map.Integer("disk_write_bps_max", &limits.disk_write_bps_max);
  if (map.Integer("net_bandwidth_mbps", &limits.net_bandwidth_mbps) &&
      (limits.net_bandwidth_mbps == 0 || limits.net_bandwidth_mbps > kMostMbps)) {
    const YamlNode* given = map.Node("net_bandwidth_mbps", ValueType::kInteger);
    context.Error(given->at, given->scalar,
                  absl::StrCat("must be from 1 to ", kMostMbps,
                               " megabit a second; without the key there is no limit"));
  }
  map.Integer("pids_max", &limits.pids_max);
  map.Duration("command_timeout", &limits.command_timeout);
  map.Duration("session_timeout", &limits.session_timeout);
  map.Duration("idle_timeout", &limits.idle_timeout);
  map.Finish();
}

void CheckNames(const std::vector<Text>& globs, LoadContext& context) {
  for (const Text& glob : globs) {
    std::vector<Glob> parsed;
    GlobError error;
    if (!Glob::Parse(glob.value, GlobKind::kWord, parsed, error))
      context.Error(glob.at, glob.value, error.message);
  }
}

void LoadEnv(MapReader& top, LoadContext& context) {
  if (const YamlNode* node = top.Node("env_policy", ValueType::kSection)) {
    MapReader map(*node, "env_policy", context);
    EnvRules& env = context.document->env;
    env.given = true;
    map.Texts("allow", &env.allow);
    map.Texts("deny", &env.deny);
    map.Integer("max_bytes", &env.max_bytes);
    map.Integer("max_keys", &env.max_keys);
    CheckNames(env.allow, context);
    CheckNames(env.deny, context);
    map.Finish();
  }
  top.TextMap("env_inject", &context.document->env_inject);
}

void LoadAudit(MapReader& top, LoadContext& context) {
  const YamlNode* node = top.Node("audit", ValueType::kSection);
  if (node == nullptr) return;
  MapReader map(*node, "audit", context);
  Audit& audit = context.document->audit;
  map.Bool("log_allowed", &audit.log_allowed);
  map.Bool("log_denied", &audit.log_denied);
  map.Bool("log_approved", &audit.log_approved);
  map.Integer("retention_days", &audit.retention_days);
  map.Finish();
}

void LoadTransparent(MapReader& top, LoadContext& context) {
  const YamlNode* node = top.Node("transparent_commands", ValueType::kSection);
  if (node == nullptr) return;
  MapReader map(*node, "transparent_commands", context);
  std::vector<Text> names;
  if (map.Texts("add", &names)) {
    for (const Text& t : names) context.document->transparent_add.push_back(t.value);
  }
  names.clear();
  if (map.Texts("remove", &names)) {
    for (const Text& t : names) context.document->transparent_remove.push_back(t.value);
  }
  map.Finish();
}

}  // namespace

void LoadSettings(MapReader& top, LoadContext& context) {
  LoadWords(top, context);
  LoadDefaults(top, context);
  LoadLimits(top, context);
  LoadEnv(top, context);
  LoadAudit(top, context);
  LoadTransparent(top, context);
}

}  // namespace agentmon::policy
