// Policy text -> Document. Pure; ReadPolicyFile is the one function of this library that touches a file.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/policy/map_reader.h"
#include "common/policy/rule.h"

namespace agentmon::policy {

struct LoadResult {
  Document document;
  Diagnostics diagnostics;  // errors, warnings (rules that nothing enforces), notes, in file order
  bool ok() const { return !HasErrors(diagnostics); }
};

// YAML or JSON. All mistakes are reported, each with its place; on errors the document is what could be read.
LoadResult LoadPolicy(absl::string_view text, absl::string_view file);

// A regular file of at most 4 MiB. Follows links: callers that run as root open root's own directories only.
absl::StatusOr<std::string> ReadPolicyFile(const std::string& path);

// Parts of the loader.
void LoadRules(MapReader& top, LoadContext& context);
void LoadSettings(MapReader& top, LoadContext& context);
void LoadLinux(const YamlNode& node, LoadContext& context);

// Checks one rule whatever it came from (a file, a message): globs, prefixes, ports, expressions, variables'
// names.
void CheckRule(const Rule& rule, LoadContext& context);

}  // namespace agentmon::policy
