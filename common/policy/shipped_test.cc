// The policies of the package load without a word, and their tables hold.
#include <catch2/catch.hpp>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "common/policy/loader.h"
#include "common/policy/table.h"

namespace agentmon::policy {
namespace {

const std::filesystem::path kPolicies = std::filesystem::path(AGENTMON_SOURCE_DIR) / "packaging/policies";

absl::StatusOr<PolicyText> Source(absl::string_view name, absl::string_view table) {
  const std::filesystem::path path =
      std::filesystem::path(std::string(table)).parent_path() / std::string(name);
  auto text = ReadPolicyFile(path.string());
  if (!text.ok()) return text.status();
  return PolicyText{*text, path.filename().string()};
}

}  // namespace

TEST_CASE("every row of the tables of the shipped policies holds") {
  size_t rows = 0;
  for (const char* name : {"default", "observe", "strict", "ci"}) {
    const std::string path = (kPolicies / "tests" / absl::StrCat(name, ".yaml")).string();
    const TableRun run = RunTable(ReadPolicyFile(path).value(), path, Source);
    for (const Diagnostic& d : run.diagnostics) {
      UNSCOPED_INFO(FormatDiagnostic(d));
      CHECK(d.severity != Severity::kError);
    }
    for (const TableCase& c : run.cases) {
      INFO(name << ":" << c.at.line << ": " << c.name << ": " << c.detail);
      CHECK(c.passed);
    }
    CHECK(run.cases.size() > 300);
    rows += run.cases.size();
  }
  CHECK(rows > 1200);
}

TEST_CASE("the shipped policies load without a warning") {
  for (const char* name : {"default", "observe", "strict", "ci"}) {
    const std::string path = (kPolicies / absl::StrCat(name, ".yaml")).string();
    for (const Diagnostic& d : LoadPolicy(ReadPolicyFile(path).value(), path).diagnostics)
      FAIL_CHECK(FormatDiagnostic(d));
  }
}

}  // namespace agentmon::policy
