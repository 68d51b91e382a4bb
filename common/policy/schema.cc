#include "common/policy/schema.h"

#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/policy/key_table.h"

namespace agentmon::policy {
namespace {

std::string Quoted(absl::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out.push_back('\\');
    if (static_cast<unsigned char>(c) < 0x20)
      absl::StrAppendFormat(&out, "\\u%04x", c);
    else
      out.push_back(c);
  }
  return out + "\"";
}

std::string Enumeration(const Key& key) {
  std::vector<std::string> words;
  for (const absl::string_view value : key.values) words.push_back(Quoted(value));
  return absl::StrCat("\"enum\": [", absl::StrJoin(words, ", "), "]");
}

std::string Reference(absl::string_view section) {
  return absl::StrCat("{\"$ref\": \"#/$defs/", section, "\"}");
}

// The members of the schema of a value, without braces.
std::string Members(const Key& key) {
  constexpr absl::string_view kScalar = "\"type\": [\"string\", \"number\", \"boolean\"]";
  switch (key.type) {
    case ValueType::kText:
      return std::string(kScalar);
    case ValueType::kInteger:
      return "\"type\": \"integer\", \"minimum\": 0";
    case ValueType::kBool:
      return "\"type\": \"boolean\"";
    case ValueType::kDuration:
      return R"("type": "string", "pattern": "^([0-9.]+(ns|us|ms|s|m|h))+$|^0$")";
    case ValueType::kTextList:
      return absl::StrCat("\"type\": \"array\", \"items\": {", kScalar, "}");
    case ValueType::kTextMap:
      return absl::StrCat("\"type\": \"object\", \"additionalProperties\": {", kScalar, "}");
    case ValueType::kWord:
      return Enumeration(key);
    case ValueType::kWordList:
      return absl::StrCat("\"oneOf\": [{", Enumeration(key), "}, {\"type\": \"array\", \"items\": {",
                          Enumeration(key), "}}]");
    case ValueType::kPortList:
      return R"("type": "array", "items": {"oneOf": [{"type": "integer", "minimum": 1, "maximum": 65535}, {"type": "string", "pattern": "^[0-9]+(-[0-9]+)?$"}]})";
    case ValueType::kSignalList:
      return R"("type": "array", "items": {"type": ["string", "integer"]})";
    case ValueType::kContext:
      return R"("oneOf": [{"type": "array", "items": {"enum": ["direct", "nested"]}}, {"type": "object", "additionalProperties": false, "properties": {"min_depth": {"type": "integer"}, "max_depth": {"type": "integer", "minimum": -1}}}])";
    case ValueType::kSection:
      return absl::StrCat("\"allOf\": [", Reference(key.values[0]), "]");
    case ValueType::kSectionList:
      return absl::StrCat("\"type\": \"array\", \"items\": ", Reference(key.values[0]));
    case ValueType::kAny:
      return "";
  }
  return "";
}

std::string Property(const Key& key) {
  const absl::string_view prefix = key.state == KeyState::kNotEnforced ? "Nothing enforces this yet. "
                                   : key.state == KeyState::kIgnored   ? "Ignored. "
                                                                       : "";
  const std::string members = Members(key);
  return absl::StrCat("      ", Quoted(key.name),
                      ": {\"description\": ", Quoted(absl::StrCat(prefix, key.description)),
                      members.empty() ? "" : ", ", members, "}");
}

std::string Object(absl::string_view section) {
  std::vector<std::string> properties;
  bool decision = false, target = false;
  for (const Key& key : KeyTable()) {
    if (key.section != section) continue;
    properties.push_back(Property(key));
    decision = decision || key.name == "decision";
    target = target || key.name == "target";
  }
  std::string out =
      absl::StrCat("\"type\": \"object\",\n      \"additionalProperties\": false,\n      \"properties\": {\n",
                   absl::StrJoin(properties, ",\n"), "\n      }");
  if (decision)
    absl::StrAppend(&out, ",\n      \"required\": [\"decision\"", target ? ", \"target\"" : "", "]");
  return out;
}

}  // namespace

std::string JsonSchema() {
  std::set<absl::string_view> sections;
  for (const Key& key : KeyTable()) {
    if (!key.section.empty() && !absl::StartsWith(key.section, "table")) sections.insert(key.section);
  }
  std::vector<std::string> definitions;
  for (const absl::string_view section : sections)
    definitions.push_back(absl::StrCat("    ", Quoted(section), ": {\n      ", Object(section), "\n    }"));
  return absl::StrCat(
      "{\n  \"$schema\": \"https://json-schema.org/draft/2020-12/schema\",\n  \"title\": \"agentmon "
      "policy\",\n  ",
      Object(""),
      ",\n      \"patternProperties\": {\"^db_\": {\"description\": \"Nothing enforces this yet.\"}},\n  "
      "\"$defs\": {\n",
      absl::StrJoin(definitions, ",\n"), "\n  }\n}\n");
}

std::string StarterPolicy() {
  return R"(# yaml-language-server: $schema=/usr/share/agentmon/policy.schema.json
# The first rule of a list that matches decides. Check it with: agentmon policy lint FILE
version: 1
name: my-policy
description: What agents may do in this project.

# monitor: record only. warn: allow and tell. enforce: stop. isolate: stop, and no network.
posture: enforce

# Where no rule matches. What is left out: reads are allowed, everything else is denied.
defaults:
  command: allow
  file_read: allow
  file_write: deny
  network: deny
  unix_socket: deny
  signal: deny

file_rules:
  - name: secrets
    paths: ["~/.ssh/**", "~/.aws/**", "**/.env", "**/.env.*", "**/*.pem"]
    decision: deny
    message: "{{.Path}} holds secrets"
  - name: git-hooks
    paths: ["**/.git/hooks/**"]
    operations: [write, create, rename, delete, link, symlink, chmod]
    decision: ask
  - name: project
    paths: ["${WORKSPACE}/**", "/tmp/**", "~/.cache/**"]
    decision: allow

network_rules:
  - name: metadata
    cidrs: [169.254.0.0/16]
    decision: deny
  - name: this-host
    domains: [localhost]
    decision: allow
  - name: git-hosts
    domains: [github.com]
    ports: [22, 443]
    decision: allow

unix_socket_rules:
  - name: project-sockets
    paths: ["${WORKSPACE}/**", "/tmp/**"]
    decision: allow

command_rules:
  - name: force-push
    commands: [git]
    args_patterns: ['(^|\s)push\s(.*\s)?(--force\S*|-f|\+\S+)(\s|$)']
    decision: ask
    message: "rewrite what others have: git {{.Args}}"
  - name: other-users
    commands: [sudo, su, doas]
    anywhere: true
    decision: deny

signal_rules:
  - name: own-session
    target: {type: session}
    decision: allow
)";
}

}  // namespace agentmon::policy
