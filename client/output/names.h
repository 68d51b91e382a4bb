// The words that JSON, CSV and tables use for the values of the protocol.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "agentmon/v1/event.pb.h"
#include "agentmon/v1/sessions.pb.h"

namespace agentmon {

std::vector<std::string> KindWords();             // every kind and group that --kind takes
std::string CountIsName(v1::CountIs count_is);    // "exact", "at_least"
std::string DecisionName(v1::Decision decision);  // "allow", "deny", ...; "" when nothing judged
// DECISION_UNSPECIFIED when there is no such decision. "approve" is another word for ask.
v1::Decision DecisionByName(absl::string_view name);
std::string ResultName(v1::Net::Result result);        // "ok", "failed", "in_progress", "not_known"
std::string ChangeName(v1::SessionChange::What what);  // "started", "gap", ...
std::string PostureName(v1::Posture posture);          // "enforce", ...
std::string LayerName(v1::LayerKind kind);             // "floor", "base", ...
std::string HowName(v1::RuleEnforcement::How how);     // "kernel", "asked", "observed", "none"
std::string StateName(v1::Session::State state);       // "running", "ended", ...
std::string OriginName(v1::Session::Origin origin);    // "run", "adopt", "watch"
std::string SourceSees(v1::Source source);             // "programs", "file changes", ...
std::string SignalName(int signal);                    // "SIGKILL"; "signal 40" without a name
std::string OpenFlagsText(uint32_t flags);             // "O_WRONLY|O_CREAT|0x8"
std::string ModeText(uint32_t mode);                   // "0644"

}  // namespace agentmon
