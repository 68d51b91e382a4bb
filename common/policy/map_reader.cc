#include "common/policy/map_reader.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace agentmon::policy {
namespace {

absl::string_view Shown(const YamlNode& node) {
  switch (node.kind) {
    case YamlNode::Kind::kScalar:
      return node.scalar;
    case YamlNode::Kind::kList:
      return "[...]";
    case YamlNode::Kind::kMap:
      return "{...}";
  }
  return "";
}

}  // namespace

void LoadContext::Add(Severity severity, Position at, absl::string_view text, absl::string_view message,
                      absl::string_view suggestion) {
  diagnostics->push_back(
      {severity, file, at, std::string(text), std::string(message), std::string(suggestion)});
}

void LoadContext::Error(Position at, absl::string_view text, absl::string_view message,
                        absl::string_view suggestion) {
  Add(Severity::kError, at, text, message, suggestion);
}

std::optional<absl::Duration> ParseGoDuration(absl::string_view text) {
  absl::Duration out;
  if (absl::StartsWith(text, "-") || !absl::ParseDuration(text, &out) || out == absl::InfiniteDuration()) {
    return std::nullopt;
  }
  return out;
}

MapReader::MapReader(const YamlNode& node, absl::string_view section, LoadContext& context)
    : node_(node), section_(section), context_(context) {
  if (node.kind != YamlNode::Kind::kMap) {
    if (!node.IsNull()) {
      context.Error(node.at, Shown(node),
                    absl::StrCat(section.empty() ? "a policy" : section, " must be a map of keys"));
    }
    return;
  }
  for (const auto& [key, value] : node.entries) CheckKey(*key);
}

void MapReader::CheckKey(const YamlNode& key) {
  const Key* known = FindKey(section_, key.scalar);
  if (known == nullptr) {
    std::vector<absl::string_view> names;
    for (const Key& k : KeyTable()) {
      if (k.section == section_ && k.state == KeyState::kUsed) names.push_back(k.name);
    }
    const std::string nearest = Nearest(key.scalar, names);
    context_.Error(key.at, key.scalar, "unknown key",
                   nearest.empty() ? absl::StrCat("known here: ", absl::StrJoin(names, ", "))
                                   : absl::StrCat("did you mean \"", nearest, "\"?"));
  } else if (known->state == KeyState::kNotEnforced) {
    context_.document->unenforced.push_back(
        {absl::StrCat(section_, section_.empty() ? "" : ".", key.scalar), key.at});
  } else if (known->state == KeyState::kIgnored) {
    context_.Add(Severity::kNote, key.at, key.scalar, absl::StrCat("ignored: ", known->description));
  }
}

const YamlNode* MapReader::Find(absl::string_view key, ValueType type) {
  const Key* known = FindKey(section_, key);
  if (known == nullptr || known->type != type) {
    context_.Error(node_.at, key, "internal error: the key table and the loader disagree");
    return nullptr;
  }
  read_.push_back(key);
  for (const auto& [name, value] : node_.entries) {
    if (name->scalar == key) return value->IsNull() ? nullptr : value;
  }
  return nullptr;
}

bool MapReader::Has(absl::string_view key) const {
  return std::any_of(node_.entries.begin(), node_.entries.end(),
                     [&](const auto& entry) { return entry.first->scalar == key; });
}

const YamlNode* MapReader::Node(absl::string_view key, ValueType type) { return Find(key, type); }

bool MapReader::Scalar(const YamlNode* node, absl::string_view want) {
  if (node == nullptr) return false;
  if (node->kind == YamlNode::Kind::kScalar) return true;
  context_.Error(node->at, Shown(*node), absl::StrCat("must be ", want));
  return false;
}

bool MapReader::Text(absl::string_view key, policy::Text* out) {
  const YamlNode* node = Find(key, ValueType::kText);
  if (!Scalar(node, "text")) return false;
  *out = {node->scalar, node->at};
  return true;
}

bool MapReader::Text(absl::string_view key, std::string* out) {
  policy::Text text;
  if (!Text(key, &text)) return false;
  *out = std::move(text.value);
  return true;
}

bool MapReader::Integer(absl::string_view key, int64_t* out) {
  const YamlNode* node = Find(key, ValueType::kInteger);
  if (!Scalar(node, "a whole number")) return false;
  if (absl::SimpleAtoi(node->scalar, out) && *out >= 0) return true;
  *out = 0;
  context_.Error(node->at, node->scalar, "must be a whole number, 0 or more");
  return false;
}

bool MapReader::Bool(absl::string_view key, bool* out) {
  const YamlNode* node = Find(key, ValueType::kBool);
  if (!Scalar(node, "true or false")) return false;
  const std::string word = absl::AsciiStrToLower(node->scalar);
  if (word == "true" || word == "yes" || word == "on") {
    *out = true;
  } else if (word == "false" || word == "no" || word == "off") {
    *out = false;
  } else {
    context_.Error(node->at, node->scalar, "must be true or false");
    return false;
  }
  return true;
}

bool MapReader::Duration(absl::string_view key, absl::Duration* out) {
  const YamlNode* node = Find(key, ValueType::kDuration);
  if (!Scalar(node, "a time such as 30s, 10m or 1h30m")) return false;
  const std::optional<absl::Duration> duration = ParseGoDuration(node->scalar);
  if (!duration) {
    int64_t number;
    context_.Error(node->at, node->scalar, "must be a time such as 30s, 10m or 1h30m",
                   absl::SimpleAtoi(node->scalar, &number) ? "add a unit" : "");
    return false;
  }
  *out = *duration;
  return true;
}

bool MapReader::Texts(absl::string_view key, std::vector<policy::Text>* out) {
  const YamlNode* node = Find(key, ValueType::kTextList);
  if (node == nullptr) return false;
  if (node->kind != YamlNode::Kind::kList) {
    context_.Error(
        node->at, Shown(*node), absl::StrCat(key, " must be a list"),
        node->kind == YamlNode::Kind::kScalar ? absl::StrCat("[\"", Printable(node->scalar), "\"]") : "");
    return false;
  }
  for (const YamlNode* item : node->items) {
    if (item->IsNull())
      context_.Error(item->at, "", "an empty entry");
    else if (Scalar(item, "text"))
      out->push_back({item->scalar, item->at});
  }
  return !out->empty();
}

bool MapReader::TextMap(absl::string_view key, std::vector<std::pair<std::string, std::string>>* out) {
  const YamlNode* node = Find(key, ValueType::kTextMap);
  if (node == nullptr) return false;
  if (node->kind != YamlNode::Kind::kMap) {
    context_.Error(node->at, Shown(*node), absl::StrCat(key, " must be a map of names and values"));
    return false;
  }
  for (const auto& [name, value] : node->entries) {
    if (Scalar(value, "text")) out->emplace_back(name->scalar, value->scalar);
  }
  return true;
}

bool MapReader::OneOf(const Key& key, const YamlNode& node, policy::Text* out) {
  if (!Scalar(&node, "a word")) return false;
  const std::string lower = absl::AsciiStrToLower(node.scalar);
  if (std::find(key.values.begin(), key.values.end(), lower) != key.values.end() ||
      (key.name == "decision" && ParseDecision(lower) && lower != "absorb")) {
    *out = {lower, node.at};
    return true;
  }
  const std::string nearest = Nearest(node.scalar, key.values);
  context_.Error(node.at, node.scalar,
                 absl::StrCat("unknown ", key.name == "operations" ? "operation" : key.name),
                 nearest.empty() ? absl::StrCat("one of ", absl::StrJoin(key.values, ", "))
                                 : absl::StrCat("did you mean \"", nearest, "\"?"));
  return false;
}

bool MapReader::Word(absl::string_view key, policy::Text* out) {
  const YamlNode* node = Find(key, ValueType::kWord);
  return node != nullptr && OneOf(*FindKey(section_, key), *node, out);
}

bool MapReader::Words(absl::string_view key, std::vector<policy::Text>* out) {
  const YamlNode* node = Find(key, ValueType::kWordList);
  if (node == nullptr) return false;
  const Key& known = *FindKey(section_, key);
  const auto add = [&](const YamlNode& item) {
    policy::Text word;
    if (OneOf(known, item, &word)) out->push_back(std::move(word));
  };
  if (node->kind == YamlNode::Kind::kList) {
    for (const YamlNode* item : node->items) add(*item);
  } else {
    add(*node);
  }
  return !out->empty();
}

void MapReader::Finish() {
  for (const auto& [name, value] : node_.entries) {
    const Key* key = FindKey(section_, name->scalar);
    if (key == nullptr || key->state != KeyState::kUsed || key->type == ValueType::kAny) continue;
    if (std::find(read_.begin(), read_.end(), name->scalar) == read_.end()) {
      context_.Error(name->at, name->scalar,
                     "internal error: a key of the table that the loader does not read");
    }
  }
}

}  // namespace agentmon::policy
