// Rules that do not do what they look like. Pure; needs the document only.
#pragma once

#include <set>
#include <string>

#include "common/policy/snapshot.h"

namespace agentmon::policy {

// Each finding is a warning whose message starts with its kind:
//   dead           the rule can never decide anything
//   shadowed       an earlier rule, which is named, always decides first
//   contradictory  an earlier rule with the same conditions decides differently
//   broad          an allow that covers everything stands before rules that deny
//   order          an earlier allow lets through a secret that a later rule is meant to stop
//   narrow         "*" as a domain: names of one label only
// Errors of compiling come first (uncompilable). Variables that options do not define are given stand-ins.
Diagnostics Lint(std::shared_ptr<const Document> document, LayerKind kind, const CompileOptions& options);

// The variables that the patterns of a document name.
std::set<std::string> VariablesOf(const Document& document);

// The options with a stand-in for each variable of the document that they lack.
CompileOptions WithStandIns(const Document& document, CompileOptions options);

}  // namespace agentmon::policy
