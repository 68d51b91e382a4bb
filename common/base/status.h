// absl::Status for failures of the environment: made where the call failed, one piece of context
// added per layer ("apply limits: write memory.max: EBUSY"), logged once, at the top.
#pragma once

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace agentmon {

// "what: No such file or directory (ENOENT)", with the canonical code that fits the errno.
[[nodiscard]] absl::Status ErrnoStatus(int error_number, absl::string_view what);

// The same status with "context: " before its message.
[[nodiscard]] absl::Status WithContext(const absl::Status& status, absl::string_view context);

// "ENOENT"; for a number without a name "errno 999".
std::string ErrnoName(int error_number);

}  // namespace agentmon

#define AGENTMON_CONCAT_INNER(a, b) a##b
#define AGENTMON_CONCAT(a, b) AGENTMON_CONCAT_INNER(a, b)

#define RETURN_IF_ERROR(expr)                          \
  do {                                                 \
    if (absl::Status s_ = (expr); !s_.ok()) return s_; \
  } while (false)

#define ASSIGN_OR_RETURN(lhs, expr) ASSIGN_OR_RETURN_INNER(AGENTMON_CONCAT(status_or_, __LINE__), lhs, expr)
#define ASSIGN_OR_RETURN_INNER(var, lhs, expr) \
  auto var = (expr);                           \
  if (!var.ok()) return var.status();          \
  lhs = std::move(var).value()
