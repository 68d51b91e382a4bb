// An event as one line of JSON. The schema is docs/events.md: names are stable, fields are only added.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "absl/strings/string_view.h"
#include "agentmon/v1/event.pb.h"

namespace agentmon {

nlohmann::ordered_json EventToJson(const v1::Event& event);

// Sets key to the bytes as UTF-8 (U+FFFD for what is none), and key_b64 to the bytes themselves only when
// that lost something.
void SetBytes(nlohmann::ordered_json& object, const std::string& key, absl::string_view bytes);

// The same for a list of words; all of them stand in key_b64 when one lost something.
void SetWords(nlohmann::ordered_json& object, const std::string& key,
              const google::protobuf::RepeatedPtrField<std::string>& words);

void SetUsage(nlohmann::ordered_json& out, const v1::Usage& usage);

// One line, with escapes for all that moves the cursor or reorders text, so that it is safe on a terminal.
std::string DumpJson(const nlohmann::ordered_json& value, int indent = -1);

}  // namespace agentmon
