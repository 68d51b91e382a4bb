#include "common/policy/lint.h"

#include <catch2/catch.hpp>

#include "absl/strings/str_cat.h"
#include "common/policy/loader.h"
#include "common/policy/testing/snapshots.h"

namespace agentmon::policy {
namespace {

std::string Findings(absl::string_view rules, LayerKind kind = LayerKind::kBase) {
  LoadResult loaded = LoadPolicy(absl::StrCat("version: 1\nname: t\n", rules), "p.yaml");
  REQUIRE(loaded.ok());
  std::string out;
  for (const Diagnostic& d :
       Lint(std::make_shared<const Document>(std::move(loaded.document)), kind, TestOptions())) {
    absl::StrAppend(&out, FormatDiagnostic(d), "\n");
  }
  return out;
}

bool Has(const std::string& all, const char* part) { return all.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("a rule that an earlier one always decides is shadowed, with that rule's place") {
  const std::string files = Findings(R"(file_rules:
  - {name: ws, paths: ["${WORKSPACE}/**"], decision: allow}
  - {name: env, paths: ["${WORKSPACE}/.env", "${WORKSPACE}/a/*.key"], operations: [read], decision: deny}
)");
  CHECK(Has(files, "p.yaml:5:5: warning: shadowed: \"ws\" (line 4, allow) always decides first: \"env\""));
  CHECK(Has(Findings(R"(command_rules:
  - {name: a, commands: [git], decision: allow}
  - {name: b, commands: [git], args_patterns: ["push"], decision: deny}
)"),
            "shadowed: \"a\""));
  CHECK(Has(Findings(R"(network_rules:
  - {name: a, cidrs: [10.0.0.0/8], decision: allow}
  - {name: b, cidrs: [10.1.0.0/16], ports: [22], decision: deny}
)"),
            "shadowed: \"a\""));
  CHECK(Has(Findings(R"(network_rules:
  - {name: a, domains: ["**.example"], decision: allow}
  - {name: b, domains: ["*.example"], decision: deny}
)"),
            "shadowed: \"a\""));
  CHECK(Has(Findings(R"(signal_rules:
  - {name: a, signals: ["@all"], target: {type: self}, decision: allow}
  - {name: b, signals: [KILL], target: {type: self}, decision: deny}
)"),
            "shadowed: \"a\""));
}

TEST_CASE("several earlier rules together can shadow") {
  CHECK(Has(Findings(R"(file_rules:
  - {name: r, paths: ["/a/**"], operations: [read], decision: allow}
  - {name: w, paths: ["/a/**"], operations: [write], decision: allow}
  - {name: d, paths: ["/a/b"], operations: [read, write], decision: deny}
)"),
            "shadowed: \"r\""));
}

TEST_CASE("what an earlier rule leaves open is no finding") {
  CHECK(Findings(R"(file_rules:
  - {name: a, paths: ["/a/ok"], decision: allow}
  - {name: b, paths: ["/a/**"], operations: [read], decision: deny}
  - {name: c, paths: ["/a/**"], decision: ask}
command_rules:
  - {name: a, commands: [git], args_patterns: ["push"], decision: deny}
  - {name: b, commands: [git], decision: allow}
network_rules:
  - {name: a, cidrs: [10.1.0.0/16], decision: deny}
  - {name: b, cidrs: [10.0.0.0/8], decision: allow}
)")
            .empty());
}

TEST_CASE("the same conditions with another decision are contradictory") {
  CHECK(Has(Findings(R"(file_rules:
  - {name: a, paths: ["/a"], decision: allow}
  - {name: b, paths: ["/a"], decision: deny}
)"),
            "contradictory: \"a\" (line 4, allow)"));
}

TEST_CASE("an allow of everything before a denial is broad") {
  CHECK(Has(Findings("file_rules:\n  - {name: a, paths: ['**'], operations: [read], decision: allow}\n  - "
                     "{name: b, paths: ['/x'], decision: deny}\n"),
            "broad: allows everything before \"b\""));
  CHECK(Has(Findings("network_rules:\n  - {name: a, decision: allow}\n  - {name: b, cidrs: [10.0.0.0/8], "
                     "decision: deny}\n"),
            "broad:"));
  CHECK(Findings("file_rules:\n  - {name: b, paths: ['/x'], decision: deny}\n  - {name: a, paths: ['**'], "
                 "decision: allow}\n")
            .empty());
}

TEST_CASE("a secret that only the order of rules leaves open is found") {
  CHECK(Has(Findings(R"(file_rules:
  - {name: ws, paths: ["${WORKSPACE}/**"], decision: allow}
  - {name: env, paths: ["**/.env"], decision: deny}
)"),
            "order: lets through /home/u/ws/.env, which \"env\" (line 5, deny) is meant to stop"));
  CHECK(Findings(R"(file_rules:
  - {name: env, paths: ["**/.env"], decision: deny}
  - {name: ws, paths: ["${WORKSPACE}/**"], decision: allow}
  - {name: rest, paths: ["**"], decision: deny}
)")
            .empty());
}

TEST_CASE("an allow that is an exception from nothing is dead outside of the base") {
  const char* text = "file_rules:\n  - {name: a, paths: ['/x'], decision: allow}\n";
  CHECK(Has(Findings(text, LayerKind::kUser), "dead: a user layer only makes stricter"));
  CHECK(Findings(text).empty());
}

TEST_CASE("the domain * is pointed out") {
  CHECK(Has(Findings("network_rules:\n  - {name: a, domains: ['*'], decision: ask}\n"), "narrow:"));
}

TEST_CASE("the shipped policies have no finding") {
  for (const char* name : {"default", "observe", "strict", "ci"}) {
    const std::string path = absl::StrCat(AGENTMON_SOURCE_DIR, "/packaging/policies/", name, ".yaml");
    LoadResult loaded = LoadPolicy(ReadPolicyFile(path).value(), path);
    for (const Diagnostic& d : Lint(std::make_shared<const Document>(std::move(loaded.document)),
                                    LayerKind::kBase, TestOptions())) {
      FAIL_CHECK(FormatDiagnostic(d));
    }
  }
}

}  // namespace agentmon::policy
