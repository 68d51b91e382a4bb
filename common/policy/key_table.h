// Every key of a policy file, once: the loader, the JSON Schema and the reference's test all read this table.
#pragma once

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace agentmon::policy {

enum class ValueType : uint8_t {
  kText,
  kInteger,
  kBool,
  kDuration,
  kTextList,
  kTextMap,
  kWord,  // kWord: one of `values`
  kWordList,
  kPortList,
  kSignalList,
  kContext,
  kSection,
  kSectionList,  // a map, a list of maps: `values[0]` names the section
  kAny,          // not looked into
};

enum class KeyState : uint8_t {
  kUsed,
  kNotEnforced,  // known to other tools; counts as a rule that nothing enforces
  kIgnored,      // has no meaning on Linux, or changes nothing that we do: named in a note
};

struct Key {
  absl::string_view section;  // "" = top level
  absl::string_view name;
  ValueType type;
  KeyState state;
  absl::string_view description;
  absl::Span<const absl::string_view> values = {};
};

absl::Span<const Key> KeyTable();
const Key* FindKey(absl::string_view section, absl::string_view name);

}  // namespace agentmon::policy
