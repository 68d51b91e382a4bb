#include "common/policy/loader.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace agentmon::policy {
namespace {

void RequireHeader(MapReader& top, LoadContext& context) {
  Document& document = *context.document;
  const bool header = top.Integer("version", &document.version);
  if (top.Has("version") && document.version == 0 && header) {
    context.Error(top.node().at, "0", "version must be greater than 0");
  } else if (document.version > 1) {
    context.Add(Severity::kNote, top.node().at, absl::StrCat(document.version),
                "a version later than 1 is read as 1");
  }
  top.Text("name", &document.name);
  if (top.incomplete() || top.Has("linux")) return;  // Gensee's files have neither
  if (!top.Has("version")) context.Error(top.node().at, "", "version is missing", "version: 1");
  if (document.name.empty()) context.Error(top.node().at, "", "name is missing", "name: my-policy");
}

void WarnUnenforced(LoadContext& context) {
  const bool best_effort = context.document->enforcement == Enforcement::kBestEffort;
  for (const Unenforced& u : context.document->unenforced) {
    context.Add(Severity::kWarning, u.at, u.key,
                "nothing enforces this yet; it counts as a rule that is not enforced",
                best_effort ? "" : "sessions are refused unless the file says enforcement: best_effort");
  }
}

}  // namespace

LoadResult LoadPolicy(absl::string_view text, absl::string_view file) {
  LoadResult result;
  result.document.file = std::string(file);
  LoadContext context{std::string(file), &result.diagnostics, &result.document};
  const YamlTree tree = YamlTree::Parse(text, file, result.diagnostics);
  if (tree.root() == nullptr) {
    if (result.diagnostics.empty())
      context.Error({1, 1}, "", "the file is empty", "agentmon policy init writes a starter");
    return result;
  }
  MapReader top(*tree.root(), "", context);
  if (tree.root()->kind == YamlNode::Kind::kMap) {
    RequireHeader(top, context);
    LoadSettings(top, context);
    LoadRules(top, context);
    top.Finish();
    WarnUnenforced(context);
  }
  std::stable_sort(result.diagnostics.begin(), result.diagnostics.end(),
                   [](const Diagnostic& a, const Diagnostic& b) {
                     return std::pair(a.at.line, a.at.column) < std::pair(b.at.line, b.at.column);
                   });
  return result;
}

}  // namespace agentmon::policy
