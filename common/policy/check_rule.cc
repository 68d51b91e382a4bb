#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/policy/loader.h"
#include "common/policy/patterns.h"
#include "common/policy/variables.h"

namespace agentmon::policy {
namespace {

// The text with every variable replaced by something harmless. False: a broken reference, reported.
bool Filled(const Text& text, absl::string_view filler, LoadContext& context, std::string& out) {
  if (!absl::StrContains(text.value, "${") && !absl::StartsWith(text.value, "~")) {
    out = text.value;
    return true;
  }
  ExpandResult error;
  Variables variables;
  for (const std::string& name : VariableNames(text.value, error))
    variables.derived[name] = std::string(filler);
  if (error.error.empty()) {
    ExpandResult expanded = Expand(text.value, variables, false, Escape::kGlob);
    out = std::move(expanded.value);
    error.error = std::move(expanded.error);
    error.offset = expanded.offset;
  }
  if (error.error.empty()) return true;
  context.Error({text.at.line, text.at.column + static_cast<uint32_t>(error.offset)}, text.value,
                error.error);
  return false;
}

void Broken(const Text& text, const GlobError& error, LoadContext& context) {
  // The offset is into the expanded text; it is the file's own where nothing was expanded.
  const uint32_t offset = absl::StrContains(text.value, "${") ? 0 : static_cast<uint32_t>(error.offset);
  const bool relative = absl::StartsWith(error.message, "a relative path");
  std::string suggestion;
  if (relative && text.value.find_first_of("*$~") != 0)
    suggestion = absl::StrCat("${WORKSPACE}/", text.value);
  if (relative && text.value == "*") suggestion = "**";
  context.Error({text.at.line, text.at.column + offset}, text.value, error.message, suggestion);
}

void CheckPaths(const Rule& rule, LoadContext& context) {
  for (const Text& path : rule.paths) {
    std::string text;
    std::vector<Glob> globs;
    GlobError error;
    if (!Filled(path, "/x", context, text)) continue;
    if (!ParsePathPattern(text, rule.kind, globs, error)) Broken(path, error, context);
  }
}

void CheckDestinations(const Rule& rule, LoadContext& context) {
  for (const Text& domain : rule.domains) {
    std::string text;
    DomainPattern pattern;
    GlobError error;
    if (!Filled(domain, "x", context, text)) continue;
    if (!ParseDomainPattern(text, pattern, error)) Broken(domain, error, context);
  }
  for (const Text& cidr : rule.cidrs) {
    std::string error;
    if (!ParsePrefix(cidr.value, error)) context.Error(cidr.at, cidr.value, error);
  }
}

void CheckCommands(const Rule& rule, LoadContext& context) {
  for (const Text& token : rule.commands) {
    std::string text;
    std::vector<Glob> globs;
    GlobError error;
    bool is_path;
    if (!Filled(token, "/x", context, text)) continue;
    if (!ParseCommandToken(text, is_path, globs, error)) Broken(token, error, context);
  }
  for (const Text& pattern : rule.args_patterns) {
    std::string error;
    if (CompileExpression(pattern.value, error) == nullptr) {
      context.Error(
          pattern.at, pattern.value, absl::StrCat("not an RE2 expression: ", error),
          absl::StartsWith(pattern.value, "*") ? "these are expressions, not globs: .* in place of *" : "");
    }
  }
}

}  // namespace

void CheckRule(const Rule& rule, LoadContext& context) {
  switch (rule.kind) {
    case RuleKind::kFile:
    case RuleKind::kUnix:
      CheckPaths(rule, context);
      break;
    case RuleKind::kNetwork:
      CheckDestinations(rule, context);
      break;
    case RuleKind::kCommand:
      CheckCommands(rule, context);
      break;
    case RuleKind::kSignal:
      if (rule.target_pattern.value.empty()) break;
      std::vector<Glob> globs;
      GlobError error;
      if (!Glob::Parse(rule.target_pattern.value, GlobKind::kWord, globs, error))
        Broken(rule.target_pattern, error, context);
      break;
  }
  if (rule.kind == RuleKind::kFile && !rule.redirect.target.value.empty()) {
    std::string unused;
    Filled(rule.redirect.target, "/x", context, unused);
  }
}

}  // namespace agentmon::policy
