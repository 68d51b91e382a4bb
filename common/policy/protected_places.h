// What rules on files protect, seen from the objects: where to look for files that may have another name, and
// what a directory that moves may carry along.
#pragma once

#include <string>
#include <vector>

#include "common/policy/snapshot.h"

namespace agentmon::policy {

struct ProtectedPlaces {
  // Literal beginnings of patterns that stop something: files, or directories with all below them. Patterns
  // that begin with a wildcard have none. Sorted; none lies below another.
  std::vector<std::string> roots;
  // Ends of paths that such a pattern matches, cut at a slash: when a directory that is named differently
  // afterwards is judged with each of these behind it, before and after, a difference means that it carries
  // something into a rule or out of it. Sorted.
  std::vector<std::string> tails;
};

// Pure.
ProtectedPlaces FindProtectedPlaces(const Snapshot& snapshot);

}  // namespace agentmon::policy
