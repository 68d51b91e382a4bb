#include "client/output/times.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace agentmon {
namespace {

// "10m" and the like. False when it is not of that form.
bool ParseAgo(absl::string_view text, absl::Duration* ago) {
  if (absl::EndsWith(text, " ago")) text.remove_suffix(4);
  if (text.size() < 2) return false;
  absl::Duration unit;
  switch (text.back()) {
    case 's':
      unit = absl::Seconds(1);
      break;
    case 'm':
      unit = absl::Minutes(1);
      break;
    case 'h':
      unit = absl::Hours(1);
      break;
    case 'd':
      unit = absl::Hours(24);
      break;
    case 'w':
      unit = absl::Hours(24 * 7);
      break;
    default:
      return false;
  }
  double number = 0;
  if (!absl::ascii_isdigit(static_cast<unsigned char>(text[0]))) return false;
  if (!absl::SimpleAtod(text.substr(0, text.size() - 1), &number)) return false;
  *ago = number * unit;
  return *ago < absl::Hours(24 * 366 * 100);
}

}  // namespace

absl::StatusOr<absl::Time> ParseWhen(absl::string_view text, absl::Time now, absl::TimeZone zone) {
  absl::Duration ago;
  if (ParseAgo(text, &ago)) return now - ago;
  absl::Time time;
  if (absl::ParseTime(absl::RFC3339_full, text, &time, nullptr)) return time;
  for (const char* format :
       {"%Y-%m-%d", "%Y-%m-%d %H:%M", "%Y-%m-%d %H:%M:%E*S", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%E*S"}) {
    if (absl::ParseTime(format, text, zone, &time, nullptr)) return time;
  }
  const std::string today = absl::StrCat(absl::FormatTime("%Y-%m-%d ", now, zone), text);
  for (const char* format : {"%Y-%m-%d %H:%M", "%Y-%m-%d %H:%M:%E*S"}) {
    if (absl::ParseTime(format, today, zone, &time, nullptr)) return time;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "'", text, "' is no time: write 2026-01-31, '2026-01-31 14:05', 14:05, 2026-01-31T14:05:00Z, or ",
      "how long ago: 90s, 10m, 2h, 3d"));
}

std::string Rfc3339Utc(int64_t unix_ns) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%E9SZ", absl::FromUnixNanos(unix_ns), absl::UTCTimeZone());
}

std::string LocalDate(int64_t unix_ns, absl::TimeZone zone) {
  return absl::FormatTime("%Y-%m-%d", absl::FromUnixNanos(unix_ns), zone);
}

std::string LocalTimeOfDay(int64_t unix_ns, absl::TimeZone zone) {
  return absl::FormatTime("%H:%M:%E3S", absl::FromUnixNanos(unix_ns), zone);
}

std::string LocalDateTime(int64_t unix_ns, absl::TimeZone zone) {
  return absl::FormatTime("%Y-%m-%d %H:%M:%S", absl::FromUnixNanos(unix_ns), zone);
}

std::string ShortDuration(absl::Duration duration) {
  const int64_t seconds = absl::ToInt64Seconds(duration);
  if (seconds < 10) return absl::StrFormat("%.1fs", absl::ToDoubleSeconds(duration));
  if (seconds < 60) return absl::StrCat(seconds, "s");
  if (seconds < 3600) return absl::StrCat(seconds / 60, "m ", seconds % 60, "s");
  if (seconds < 86400) return absl::StrCat(seconds / 3600, "h ", seconds / 60 % 60, "m");
  return absl::StrCat(seconds / 86400, "d ", seconds / 3600 % 24, "h");
}

std::string ByteSize(uint64_t bytes) {
  if (bytes < 1024) return absl::StrCat(bytes, " B");
  static constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB"};
  double number = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  for (; number >= 1024 && unit < 3; ++unit) number /= 1024;
  return absl::StrFormat("%.1f %s", number, kUnits[unit]);
}

}  // namespace agentmon
