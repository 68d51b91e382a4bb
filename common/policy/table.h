// Tables of `policy test`: acts, and what a policy must say of them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/policy/act.h"
#include "common/policy/snapshot.h"

namespace agentmon::policy {

struct TableCase {
  std::string name;  // "open ~/.ssh/id_rsa"
  std::string file;
  Position at;
  bool passed = false;
  std::string detail;  // why it failed
};

struct TableRun {
  Diagnostics diagnostics;  // of the table and its policies
  std::vector<TableCase> cases;
  double seconds = 0;  // filled by the caller
  bool ok() const;
  size_t failed() const;
};

// The text of a policy that a table names; path: what messages call it.
struct PolicyText {
  std::string text, path;
};
using PolicySource =
    std::function<absl::StatusOr<PolicyText>(absl::string_view name, absl::string_view table_file)>;

TableRun RunTable(absl::string_view text, absl::string_view file, const PolicySource& source);

// JUnit's XML of several runs.
std::string JUnit(const std::vector<std::pair<std::string, TableRun>>& runs);

}  // namespace agentmon::policy
