#include "common/policy/protected_places.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "common/policy/evaluate.h"

namespace agentmon::policy {
namespace {

// The text before the first wildcard, up to a slash unless the pattern says that it is whole there.
std::string LiteralBeginning(const Glob& glob) {
  const std::vector<GlobToken>& tokens = glob.tokens();
  if (tokens.empty() || tokens[0].type != GlobToken::Type::kLiteral) return "";
  const std::string& text = tokens[0].literal;
  const bool whole = tokens.size() == 1 || tokens[1].type == GlobToken::Type::kSubtree ||
                     tokens[1].type == GlobToken::Type::kDirs;
  std::string root =
      whole ? text : text.substr(0, text.rfind('/') == std::string::npos ? 0 : text.rfind('/'));
  while (root.size() > 1 && root.back() == '/') root.pop_back();
  return root;
}

void AddTails(const std::string& sample, std::vector<std::string>& tails) {
  for (size_t slash = sample.find('/'); slash != std::string::npos; slash = sample.find('/', slash + 1)) {
    if (slash + 1 < sample.size()) tails.push_back(sample.substr(slash + 1));
  }
}

void SortUnique(std::vector<std::string>& list) {
  std::sort(list.begin(), list.end());
  list.erase(std::unique(list.begin(), list.end()), list.end());
}

}  // namespace

ProtectedPlaces FindProtectedPlaces(const Snapshot& snapshot) {
  ProtectedPlaces places;
  for (const CompiledLayer& layer : snapshot.layers()) {
    if (UnderPosture(Decision::kDeny, layer.posture) != Decision::kDeny) continue;
    for (const PathIndex::Pattern& pattern : layer.files.patterns()) {
      if (Strictness(layer.rule(pattern.rule).decision) < Strictness(Decision::kRedirect)) continue;
      AddTails(GlobSample(pattern.glob), places.tails);
      std::string root = LiteralBeginning(pattern.glob);
      // Of a wildcard right below these every directory of the host would be looked through.
      if (std::count(root.begin(), root.end(), '/') >= 2) places.roots.push_back(std::move(root));
    }
  }
  SortUnique(places.tails);
  SortUnique(places.roots);
  std::vector<std::string> outermost;
  for (std::string& root : places.roots) {
    const bool below = !outermost.empty() && absl::StartsWith(root, outermost.back() + "/");
    if (!below) outermost.push_back(std::move(root));
  }
  places.roots = std::move(outermost);
  return places;
}

}  // namespace agentmon::policy
