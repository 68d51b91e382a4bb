// Reads one map of a policy file against the key table; every mistake becomes a diagnostic with its place.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/policy/key_table.h"
#include "common/policy/rule.h"
#include "common/policy/yaml_tree.h"

namespace agentmon::policy {

// What the readers of one file share.
struct LoadContext {
  std::string file;
  Diagnostics* diagnostics = nullptr;
  Document* document = nullptr;

  void Error(Position at, absl::string_view text, absl::string_view message,
             absl::string_view suggestion = "");
  void Add(Severity severity, Position at, absl::string_view text, absl::string_view message,
           absl::string_view suggestion = "");
};

// Go's spelling: "1h30m", "90s", "1.5h", "500ms", "0".
std::optional<absl::Duration> ParseGoDuration(absl::string_view text);

class MapReader {
 public:
  // Checks that node is a map and that each of its keys is in the table.
  MapReader(const YamlNode& node, absl::string_view section, LoadContext& context);

  // Each returns true when the key is there and its value is good, and then writes it.
  bool Text(absl::string_view key, std::string* out);
  bool Text(absl::string_view key, policy::Text* out);
  bool Integer(absl::string_view key, int64_t* out);
  bool Bool(absl::string_view key, bool* out);
  bool Duration(absl::string_view key, absl::Duration* out);
  bool Texts(absl::string_view key, std::vector<policy::Text>* out);
  bool TextMap(absl::string_view key, std::vector<std::pair<std::string, std::string>>* out);
  bool Word(absl::string_view key, policy::Text* out);                // lower case, one of the table's values
  bool Words(absl::string_view key, std::vector<policy::Text>* out);  // a word or a list of them
  const YamlNode* Node(absl::string_view key, ValueType type);        // for sections and types of their own
  bool Has(absl::string_view key) const;
  bool incomplete() const { return node_.incomplete; }
  const YamlNode& node() const { return node_; }

  // In tests: each used key that was there must have been read, else the loader forgot it.
  void Finish();

 private:
  const YamlNode* Find(absl::string_view key, ValueType type);
  bool Scalar(const YamlNode* node, absl::string_view want);
  bool OneOf(const Key& key, const YamlNode& node, policy::Text* out);
  void CheckKey(const YamlNode& key);

  const YamlNode& node_;
  const absl::string_view section_;
  LoadContext& context_;
  std::vector<absl::string_view> read_;
};

}  // namespace agentmon::policy
