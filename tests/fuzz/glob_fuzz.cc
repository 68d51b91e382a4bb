// A pattern, a line break, a text: the matcher ends, and the index finds what it matches.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/strings/match.h"
#include "common/policy/path_index.h"

using namespace agentmon::policy;  // NOLINT

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view all(reinterpret_cast<const char*>(data), size);
  const size_t cut = all.find('\n');
  if (cut == absl::string_view::npos) return 0;
  const absl::string_view pattern = all.substr(0, cut), text = all.substr(cut + 1);
  for (const GlobKind kind : {GlobKind::kPath, GlobKind::kDomain, GlobKind::kWord}) {
    std::vector<Glob> globs;
    GlobError error;
    if (!Glob::Parse(pattern, kind, globs, error)) continue;
    for (const Glob& glob : globs) {
      const bool matches = glob.Matches(text);
      if (!GlobCovers(glob, glob) && glob.IsLiteral()) __builtin_trap();
      if (kind != GlobKind::kPath || !(absl::StartsWith(text, "/") || absl::StartsWith(text, "@"))) continue;
      if (!(absl::StartsWith(pattern, "/") || absl::StartsWith(pattern, "@") ||
            absl::StartsWith(pattern, "**")))
        continue;
      PathIndex index;
      index.Add(glob, 0, 1);
      FirstRules first(1);
      index.Find(PathKeys(text), first);
      if ((first.Of(1) == 0) != matches) __builtin_trap();
    }
  }
  return 0;
}
