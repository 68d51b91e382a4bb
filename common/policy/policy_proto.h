// Documents to messages and back. What arrives from a client is checked like a file is.
#pragma once

#include "agentmon/v1/policy.pb.h"
#include "common/policy/evaluate.h"
#include "common/policy/rule.h"

namespace agentmon::policy {

void ToProto(const Document& document, v1::PolicyDocument& out);

// Never trusts its input: unknown operations, broken patterns, too many or too long texts are errors. The
// document is usable only when no error was added.
Document FromProto(const v1::PolicyDocument& message, Diagnostics& diagnostics);

v1::Decision ToProto(Decision decision);
Decision FromProto(v1::Decision decision);
v1::Posture ToProto(Posture posture);
v1::LayerKind ToProto(LayerKind kind);
LayerKind FromProto(v1::LayerKind kind);  // the session layer, the weakest, for an unknown one
void ToProto(const Diagnostics& diagnostics, google::protobuf::RepeatedPtrField<v1::PolicyDiagnostic>& out);

// What an event's row keeps of a verdict. enforced is the caller's to say.
v1::Judgement ToJudgement(const Snapshot& snapshot, const Verdict& verdict, const Subject& subject);
// The same of what no policy opens. Both texts are UTF-8.
v1::Judgement BuiltinDenial(absl::string_view rule, absl::string_view message);

}  // namespace agentmon::policy
