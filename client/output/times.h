// Times as people write and read them.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace agentmon {

// RFC 3339, "YYYY-MM-DD[ HH:MM[:SS]]" and "HH:MM[:SS]" (today) in `zone`, or how long before now: "90s",
// "10m", "2h", "3d", "1w". InvalidArgument with what is understood otherwise.
absl::StatusOr<absl::Time> ParseWhen(absl::string_view text, absl::Time now, absl::TimeZone zone);

std::string Rfc3339Utc(int64_t unix_ns);                           // "2026-01-02T03:04:05.123456789Z"
std::string LocalDate(int64_t unix_ns, absl::TimeZone zone);       // "2026-01-02"
std::string LocalTimeOfDay(int64_t unix_ns, absl::TimeZone zone);  // "03:04:05.123"
std::string LocalDateTime(int64_t unix_ns, absl::TimeZone zone);   // "2026-01-02 03:04:05"
std::string ShortDuration(absl::Duration duration);                // "3d 4h", "2m 5s", "1.5s"
std::string ByteSize(uint64_t bytes);                              // "17 B", "1.5 MiB"

}  // namespace agentmon
