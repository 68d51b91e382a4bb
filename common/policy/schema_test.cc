#include "common/policy/schema.h"

#include <catch2/catch.hpp>

#include <nlohmann/json.hpp>

#include "common/policy/key_table.h"
#include "common/policy/lint.h"
#include "common/policy/loader.h"
#include "common/policy/testing/snapshots.h"

namespace agentmon::policy {

TEST_CASE("the schema is JSON and has every key of the table") {
  const nlohmann::json schema = nlohmann::json::parse(JsonSchema());
  for (const Key& key : KeyTable()) {
    if (key.section.substr(0, 5) == "table") continue;
    const nlohmann::json& object = key.section.empty() ? schema : schema["$defs"][std::string(key.section)];
    INFO(key.section << "." << key.name);
    REQUIRE(object["properties"].contains(std::string(key.name)));
    const nlohmann::json& property = object["properties"][std::string(key.name)];
    CHECK(property["description"].get<std::string>().size() > 5);
    CHECK(object["additionalProperties"] == false);
    if (key.type == ValueType::kSection) CHECK(schema["$defs"].contains(std::string(key.values[0])));
  }
}

TEST_CASE("the starter file loads without a word and has no finding") {
  const LoadResult loaded = LoadPolicy(StarterPolicy(), "starter.yaml");
  for (const Diagnostic& d : loaded.diagnostics) FAIL_CHECK(FormatDiagnostic(d));
  for (const Diagnostic& d :
       Lint(std::make_shared<const Document>(loaded.document), LayerKind::kBase, TestOptions()))
    FAIL_CHECK(FormatDiagnostic(d));
}

}  // namespace agentmon::policy
