// Sessions and the daemon's status, for people and for programs.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "agentmon/v1/host.pb.h"
#include "agentmon/v1/sessions.pb.h"
#include "client/output/color.h"
#include "client/output/output.h"

namespace agentmon {

nlohmann::ordered_json SessionToJson(const v1::Session& session);
nlohmann::ordered_json StatusToJson(const v1::StatusResponse& status);

nlohmann::ordered_json PolicyToJson(const v1::PolicyState& policy);
// "base: default (enforce)" of each layer, in one line.
std::string PolicyLine(const v1::PolicyState& policy);

// What a count of denials leaves out: ", 2 of them not enforced", or nothing.
std::string NotEnforced(const v1::Session& session);

void WriteSessionTable(const std::vector<v1::Session>& sessions, absl::Time now, const Paint& paint,
                       Output& output);
void WriteSession(const v1::Session& session, absl::Time now, const Paint& paint, Output& output);
void WriteStatus(const v1::StatusResponse& status, absl::Time now, const Paint& paint, Output& output);

}  // namespace agentmon
