// An error that a client is told: a machine-readable reason and what to do about it travel with the
// status as payloads, and daemon/rpc makes google.rpc.Status details of them.
#pragma once

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/strings/string_view.h"

namespace agentmon {

inline constexpr absl::string_view kReasonPayload = "agentmon/reason";
inline constexpr absl::string_view kHintPayload = "agentmon/hint";

// reason: UPPER_SNAKE_CASE. hint: a sentence, may be empty.
inline absl::Status Refusal(absl::StatusCode code, absl::string_view reason, absl::string_view message,
                            absl::string_view hint = "") {
  absl::Status status(code, message);
  status.SetPayload(kReasonPayload, absl::Cord(reason));
  if (!hint.empty()) status.SetPayload(kHintPayload, absl::Cord(hint));
  return status;
}

}  // namespace agentmon
