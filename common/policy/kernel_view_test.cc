#include "common/policy/kernel_view.h"

#include <catch2/catch.hpp>

#include "common/policy/testing/snapshots.h"

namespace agentmon::policy {
namespace {

TEST_CASE("rules that need user space, and those behind them, are in part the kernel's") {
  const auto snapshot = MakeBase(
      "file_rules:\n  - {name: whole, paths: [/etc/shadow], decision: deny}\n"
      "  - {name: pattern, paths: [\"/srv/*/b\"], decision: allow}\n"
      "  - {name: behind, paths: [\"/srv/x/**\"], decision: deny}\n"
      "  - {name: beside, paths: [\"/opt/**\"], decision: deny}\n"
      "  - {name: loader, paths: [\"/usr/lib/x/**\"], operations: [read], decision: deny}\n");
  const auto rules = FileRulesInPart(MakeKernelView(*snapshot));
  CHECK(rules.count({1, 0}) == 0);
  CHECK(rules.count({1, 1}) == 1);
  CHECK(rules.count({1, 2}) == 1);
  CHECK(rules.count({1, 3}) == 0);
  CHECK(rules.count({1, 4}) == 1);  // behind what is built in about libraries
}

}  // namespace
}  // namespace agentmon::policy
