#include "client/output/times.h"

#include <catch2/catch.hpp>

namespace agentmon {
namespace {

const absl::TimeZone kZone = absl::FixedTimeZone(2 * 3600);
const absl::Time kNow = absl::FromCivil(absl::CivilSecond(2026, 1, 31, 15, 0, 0), kZone);

std::string Parsed(absl::string_view text) {
  const absl::StatusOr<absl::Time> time = ParseWhen(text, kNow, kZone);
  return time.ok() ? absl::FormatTime("%Y-%m-%d %H:%M:%E*S", *time, kZone) : "error";
}

}  // namespace

TEST_CASE("times are understood as people write them") {
  CHECK(Parsed("2026-01-02T03:04:05Z") == "2026-01-02 05:04:05");
  CHECK(Parsed("2026-01-02T03:04:05.25+02:00") == "2026-01-02 03:04:05.25");
  CHECK(Parsed("2026-01-02") == "2026-01-02 00:00:00");
  CHECK(Parsed("2026-01-02 13:14") == "2026-01-02 13:14:00");
  CHECK(Parsed("2026-01-02 13:14:15") == "2026-01-02 13:14:15");
  CHECK(Parsed("14:05") == "2026-01-31 14:05:00");
  CHECK(Parsed("10m") == "2026-01-31 14:50:00");
  CHECK(Parsed("2h") == "2026-01-31 13:00:00");
  CHECK(Parsed("3d") == "2026-01-28 15:00:00");
  CHECK(Parsed("3d ago") == Parsed("3d"));
  CHECK(Parsed("1.5h") == "2026-01-31 13:30:00");
}

TEST_CASE("what is no time is refused with what would be one") {
  for (const char* text :
       {"", " ago", "yesterday", "m", "-5m", "2026-13-01", "25:00", "nanm", "infd", "10x", "1e300d"}) {
    CAPTURE(text);
    CHECK(Parsed(text) == "error");
  }
  CHECK(ParseWhen("soon", kNow, kZone).status().message().find("10m") != absl::string_view::npos);
}

TEST_CASE("a time is printed in UTC with nanoseconds") {
  CHECK(Rfc3339Utc(1'767'323'045'000'000'001) == "2026-01-02T03:04:05.000000001Z");
  CHECK(LocalTimeOfDay(1'767'323'045'678'000'000, kZone) == "05:04:05.678");
}

TEST_CASE("durations and sizes are short") {
  CHECK(ShortDuration(absl::Milliseconds(1500)) == "1.5s");
  CHECK(ShortDuration(absl::Seconds(125)) == "2m 5s");
  CHECK(ShortDuration(absl::Hours(76)) == "3d 4h");
  CHECK(ByteSize(17) == "17 B");
  CHECK(ByteSize(1536) == "1.5 KiB");
  CHECK(ByteSize(5'000'000) == "4.8 MiB");
}

}  // namespace agentmon
