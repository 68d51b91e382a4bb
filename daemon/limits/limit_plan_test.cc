#include "daemon/limits/limit_plan.h"

#include <catch2/catch.hpp>

#include "absl/time/time.h"

namespace agentmon {
namespace {

std::string ValueOf(const std::vector<LimitSetting>& settings, const std::string& file) {
  for (const LimitSetting& setting : settings) {
    if (setting.file == file) return setting.value;
  }
  return "none";
}

}  // namespace

TEST_CASE("each limit becomes the value of its control file") {
  policy::ResourceLimits limits;
  limits.max_memory_mb = 100;
  limits.memory_swap_max_mb = 0;
  limits.cpu_quota_percent = 150;
  limits.pids_max = 20;
  limits.disk_write_bps_max = 1000;
  const auto settings = CgroupSettings(limits, {"8:0", "253:1"});
  CHECK(ValueOf(settings, "memory.max") == "104857600");
  CHECK(ValueOf(settings, "memory.swap.max") == "0");
  CHECK(ValueOf(settings, "cpu.max") == "150000 100000");
  CHECK(ValueOf(settings, "pids.max") == "20");
  CHECK(settings.size() == 6);
  CHECK(settings.back().value == "253:1 wbps=1000");
  CHECK(settings.back().none == "253:1 wbps=max");
}

TEST_CASE("what is not given is not set") {
  CHECK(CgroupSettings({}, {"8:0"}).empty());
  CHECK(GivenLimits({}).empty());
  CHECK(LimitLines({}, {}).empty());
}

TEST_CASE("limits are shown in plain words, missing ones left out, a command's timeout as what it is") {
  policy::ResourceLimits limits;
  limits.max_memory_mb = 8192;
  limits.pids_max = 500;
  limits.session_timeout = absl::Hours(12);
  limits.command_timeout = absl::Minutes(15);
  CHECK(LimitLines(limits, {}) == std::vector<std::string>{"memory 8192 MiB", "500 processes and threads",
                                                           "session timeout 12h",
                                                           "command timeout 15m, for exec requests only"});
  CHECK(LimitLines(limits, {{"pids_max", "why"}}).size() == 3);
  CHECK(GivenLimits(limits) == std::vector<std::string>{"max_memory_mb", "pids_max", "session_timeout"});
  CHECK(MissingText({{"a", "x"}, {"b", "y"}}) == "a (x), b (y)");
}

}  // namespace agentmon
