// Every example of docs/policy.md works, and every key has one.
#include <catch2/catch.hpp>

#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/policy/key_table.h"
#include "common/policy/loader.h"
#include "common/policy/table.h"
#include "common/policy/yaml_tree.h"

namespace agentmon::policy {
namespace {

struct Block {
  int line = 0;
  std::string text;
};

std::vector<Block> Blocks() {
  std::vector<Block> out;
  const std::string page = ReadPolicyFile(AGENTMON_SOURCE_DIR "/docs/policy.md").value();
  int number = 0;
  bool inside = false;
  for (const absl::string_view line : absl::StrSplit(page, '\n')) {
    ++number;
    if (line == "```yaml") {
      out.push_back({number, ""});
      inside = true;
    } else if (line == "```") {
      inside = false;
    } else if (inside) {
      absl::StrAppend(&out.back().text, line, "\n");
    }
  }
  return out;
}

void Keys(const YamlNode& node, const std::string& section,
          std::set<std::pair<std::string, std::string>>& seen) {
  for (const auto& [name, value] : node.entries) {
    const Key* key = FindKey(section, name->scalar);
    if (key == nullptr) continue;
    seen.insert({section, std::string(key->name)});
    if (key->type == ValueType::kSection) Keys(*value, std::string(key->values[0]), seen);
    if (key->type != ValueType::kSectionList) continue;
    for (const YamlNode* item : value->items) Keys(*item, std::string(key->values[0]), seen);
  }
}

}  // namespace

TEST_CASE("every example of the reference works") {
  std::string policy;
  int tables = 0;
  for (const Block& block : Blocks()) {
    INFO("docs/policy.md:" << block.line);
    if (absl::StartsWith(block.text, "rows:")) {
      const PolicySource source = [&](absl::string_view, absl::string_view) -> absl::StatusOr<PolicyText> {
        return PolicyText{policy, "policy.md"};
      };
      const TableRun run = RunTable(absl::StrCat("policy: x\n", block.text), "policy.md", source);
      for (const Diagnostic& d : run.diagnostics)
        CHECK(FormatDiagnostic(d) == (d.severity == Severity::kError ? "" : FormatDiagnostic(d)));
      for (const TableCase& c : run.cases) {
        INFO(c.name << ": " << c.detail);
        CHECK(c.passed);
      }
      CHECK(!run.cases.empty());
      ++tables;
    } else {
      policy = absl::StrContains(block.text, "version:") ? block.text
                                                         : absl::StrCat("version: 1\nname: x\n", block.text);
      for (const Diagnostic& d : LoadPolicy(policy, "policy.md").diagnostics) {
        const bool told = absl::StrContains(d.text, "verify_name");
        if (!told) FAIL_CHECK(FormatDiagnostic(d));
      }
    }
  }
  CHECK(tables >= 8);
}

TEST_CASE("every key has an example in the reference") {
  std::set<std::pair<std::string, std::string>> seen;
  for (const Block& block : Blocks()) {
    Diagnostics ignored;
    const YamlTree tree = YamlTree::Parse(block.text, "policy.md", ignored);
    if (tree.root() != nullptr && !absl::StartsWith(block.text, "rows:")) Keys(*tree.root(), "", seen);
  }
  for (const Key& key : KeyTable()) {
    if (key.state != KeyState::kUsed || absl::StartsWith(key.section, "table")) continue;
    INFO(key.section << "." << key.name);
    CHECK(seen.contains({std::string(key.section), std::string(key.name)}));
  }
}

}  // namespace agentmon::policy
