#include "common/policy/lint_covers.h"

#include <re2/re2.h>

#include <algorithm>

namespace agentmon::policy {
namespace {

bool AllCovered(const std::vector<Glob>& outer, const std::vector<Glob>& inner) {
  return std::all_of(inner.begin(), inner.end(), [&](const Glob& i) {
    return std::any_of(outer.begin(), outer.end(), [&](const Glob& o) { return GlobCovers(o, i); });
  });
}

bool AllContained(const std::vector<Prefix>& outer, const std::vector<Prefix>& inner) {
  return std::all_of(inner.begin(), inner.end(), [&](const Prefix& i) {
    return std::any_of(outer.begin(), outer.end(),
                       [&](const Prefix& o) { return o.length <= i.length && o.Contains(i.address); });
  });
}

}  // namespace

bool CommandCovers(const CommandRule& outer, const CommandRule& inner) {
  if (!outer.any) {
    if (inner.any || (inner.anywhere && !outer.anywhere)) return false;
    if (!AllCovered(outer.names, inner.names) || !AllCovered(outer.paths, inner.paths)) return false;
  }
  if (outer.min_depth > inner.min_depth ||
      (outer.max_depth >= 0 && (inner.max_depth < 0 || inner.max_depth > outer.max_depth)))
    return false;
  const auto has = [](const auto& list, const auto& same) {
    return std::any_of(list.begin(), list.end(), same);
  };
  for (const std::string& arg : outer.args) {
    if (std::find(inner.args.begin(), inner.args.end(), arg) == inner.args.end()) return false;
  }
  if (outer.expressions.empty()) return true;
  if (inner.expressions.empty()) return false;
  return std::all_of(inner.expressions.begin(), inner.expressions.end(), [&](const auto& i) {
    return has(outer.expressions, [&](const auto& o) { return o->pattern() == i->pattern(); });
  });
}

bool NetworkCovers(const NetworkRule& outer, const NetworkRule& inner) {
  if (outer.restricts_name) {
    if (!inner.restricts_name || !AllCovered(outer.names, inner.names) ||
        !AllContained(outer.named_addresses, inner.named_addresses))
      return false;
  }
  if (!outer.prefixes.empty() && (inner.prefixes.empty() || !AllContained(outer.prefixes, inner.prefixes)))
    return false;
  if (outer.protocols != 0 && (inner.protocols == 0 || (inner.protocols & ~outer.protocols) != 0))
    return false;
  if (outer.ports.empty()) return true;
  return !inner.ports.empty() && std::all_of(inner.ports.begin(), inner.ports.end(), [&](const PortRange& i) {
    return std::any_of(outer.ports.begin(), outer.ports.end(),
                       [&](const PortRange& o) { return o.low <= i.low && i.high <= o.high; });
  });
}

}  // namespace agentmon::policy
