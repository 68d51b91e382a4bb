#include "common/policy/snapshot.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/policy/env_names.h"

namespace agentmon::policy {

absl::string_view LayerKindName(LayerKind kind) {
  constexpr absl::string_view kNames[] = {"built-in", "floor", "base", "user", "session"};
  return kNames[static_cast<size_t>(kind)];
}

bool Snapshot::isolated() const {
  return std::any_of(layers_.begin(), layers_.end(), [](const CompiledLayer& l) {
    return l.kind != LayerKind::kBuiltin && l.document->posture == Posture::kIsolate;
  });
}

absl::string_view Snapshot::Resolve(absl::string_view path, std::string& storage) const {
  for (const auto& [from, to] : links_) {
    if (!absl::StartsWith(path, from) || (path.size() > from.size() && path[from.size()] != '/')) continue;
    std::string resolved = absl::StrCat(to, path.substr(from.size()));
    storage = std::move(resolved);
    return storage;
  }
  return path;
}

bool Snapshot::EnvAllowed(absl::string_view name, std::string* why) const {
  const auto matches = [&](const std::vector<Glob>& globs) {
    return std::any_of(globs.begin(), globs.end(), [&](const Glob& g) { return g.Matches(name); });
  };
  const auto refuse = [&](const CompiledLayer& layer, absl::string_view reason) {
    if (why != nullptr) *why = absl::StrCat(layer.name, ": ", reason);
    return false;
  };
  if (IsOwnEnvName(name)) return true;
  for (const CompiledLayer& layer : layers_) {
    if (matches(layer.env.deny)) return refuse(layer, "env_policy.deny");
    if (layer.env.allow_list) {
      if (!matches(layer.env.allow)) return refuse(layer, "not in env_policy.allow");
    } else if (layer.kind == LayerKind::kBase && IsSecretEnvName(name)) {
      return refuse(layer, "a name that carries secrets or code, and there is no env_policy.allow");
    }
  }
  return true;
}

}  // namespace agentmon::policy
