// Snapshot x act -> verdict. Pure, no locks, no I/O; about a microsecond.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/policy/snapshot.h"
#include "common/policy/subject.h"

namespace agentmon::policy {

struct Verdict {
  Decision decision = Decision::kDeny;  // what the deciding rule says
  Decision effective =
      Decision::kDeny;  // what is to happen: allow, audit, redirect, soft_delete, ask, absorb or deny
  Posture posture = Posture::kEnforce;  // of the deciding layer
  int layer = -1;                       // index into Snapshot::layers(); -1 = none: a malformed subject
  const Rule* rule = nullptr;           // null: a default, or nothing to judge
  absl::string_view reason;             // without a rule: "default for file_write", ...; static text
  bool derived = false;                 // a command behind the one that was started decided
  std::string via;                      // then: how it was reached

  bool Stops() const { return Strictness(effective) >= Strictness(Decision::kRedirect); }
};

// What one layer says, for explanations. The entries of a trace are in the order of the layers.
struct TraceStep {
  int layer = 0;
  Decision decision = Decision::kNone;  // kNone: abstains
  Decision effective = Decision::kNone;
  const Rule* rule = nullptr;
  absl::string_view reason;
  std::string about;  // the operation, or the derived command, that this step is about
};
using Trace = std::vector<TraceStep>;

Verdict Evaluate(const Snapshot& snapshot, const Subject& subject, const EvaluateOptions& options,
                 Trace* trace = nullptr);

// What a verdict is reported as. Lives as long as its strings; the snapshot may go.
struct VerdictText {
  std::string layer, rule, file, message;
  Position at;
};
VerdictText Describe(const Snapshot& snapshot, const Verdict& verdict, const Subject& subject);

// Fills {{.Path}} {{.Args}} {{.RemoteAddr}} {{.RemotePort}}; other {{...}} stay.
std::string FillMessage(absl::string_view message, const Subject& subject);

// What becomes of a decision where questions, redirects and so on are (not) possible, and of the posture.
Decision EffectiveDecision(Decision decision, const Subject& subject, const EvaluateOptions& options);
Decision UnderPosture(Decision effective, Posture posture);

// Directories that are taken for trusted when the caller has no predicate.
bool UsuallyTrusted(absl::string_view directory);

}  // namespace agentmon::policy
