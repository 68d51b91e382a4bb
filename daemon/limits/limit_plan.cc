#include "daemon/limits/limit_plan.h"

#include <tuple>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"

namespace agentmon {
namespace {

constexpr int64_t kCpuPeriodUs = 100'000;  // the kernel's own default

std::string Mebibytes(int64_t count) { return absl::StrCat(static_cast<uint64_t>(count) << 20); }

// Every key with whether it is given, in the order of the manual.
std::vector<std::pair<std::string, bool>> Keys(const policy::ResourceLimits& l) {
  const absl::Duration zero = absl::ZeroDuration();
  return {{"max_memory_mb", l.max_memory_mb != 0},
          {"memory_swap_max_mb", l.memory_swap_max_mb >= 0},
          {"cpu_quota_percent", l.cpu_quota_percent != 0},
          {"disk_read_bps_max", l.disk_read_bps_max != 0},
          {"disk_write_bps_max", l.disk_write_bps_max != 0},
          {"net_bandwidth_mbps", l.net_bandwidth_mbps != 0},
          {"pids_max", l.pids_max != 0},
          {"session_timeout", l.session_timeout != zero},
          {"idle_timeout", l.idle_timeout != zero}};
}

std::string Line(const policy::ResourceLimits& l, const std::string& key) {
  if (key == "max_memory_mb") return absl::StrCat("memory ", l.max_memory_mb, " MiB");
  if (key == "memory_swap_max_mb")
    return l.memory_swap_max_mb == 0 ? "no swap" : absl::StrCat("swap ", l.memory_swap_max_mb, " MiB");
  if (key == "cpu_quota_percent") return absl::StrCat("cpu ", l.cpu_quota_percent, " % of one processor");
  if (key == "disk_read_bps_max")
    return absl::StrCat("disk reads ", l.disk_read_bps_max, " bytes/s of each disk");
  if (key == "disk_write_bps_max")
    return absl::StrCat("disk writes ", l.disk_write_bps_max, " bytes/s of each disk");
  if (key == "net_bandwidth_mbps") return absl::StrCat("network ", l.net_bandwidth_mbps, " Mbit/s");
  if (key == "pids_max") return absl::StrCat(l.pids_max, " processes and threads");
  if (key == "session_timeout") return "session timeout " + absl::FormatDuration(l.session_timeout);
  return "idle timeout " + absl::FormatDuration(l.idle_timeout);
}

}  // namespace

std::vector<LimitSetting> CgroupSettings(const policy::ResourceLimits& l,
                                         const std::vector<std::string>& disks) {
  std::vector<LimitSetting> out;
  if (l.max_memory_mb != 0)
    out.push_back({"max_memory_mb", "memory", "memory.max", Mebibytes(l.max_memory_mb), "max"});
  if (l.memory_swap_max_mb >= 0)
    out.push_back(
        {"memory_swap_max_mb", "memory", "memory.swap.max", Mebibytes(l.memory_swap_max_mb), "max"});
  if (l.cpu_quota_percent != 0) {
    out.push_back({"cpu_quota_percent", "cpu", "cpu.max",
                   absl::StrCat(l.cpu_quota_percent * (kCpuPeriodUs / 100), " ", kCpuPeriodUs), "max"});
  }
  if (l.pids_max != 0) out.push_back({"pids_max", "pids", "pids.max", absl::StrCat(l.pids_max), "max"});
  for (const std::string& disk : disks) {
    if (l.disk_read_bps_max != 0) {
      out.push_back({"disk_read_bps_max", "io", "io.max", absl::StrCat(disk, " rbps=", l.disk_read_bps_max),
                     absl::StrCat(disk, " rbps=max")});
    }
    if (l.disk_write_bps_max != 0) {
      out.push_back({"disk_write_bps_max", "io", "io.max", absl::StrCat(disk, " wbps=", l.disk_write_bps_max),
                     absl::StrCat(disk, " wbps=max")});
    }
  }
  return out;
}

std::vector<std::string> GivenLimits(const policy::ResourceLimits& limits) {
  std::vector<std::string> given;
  for (const auto& [key, is_given] : Keys(limits)) {
    if (is_given) given.push_back(key);
  }
  return given;
}

bool SameLimits(const policy::ResourceLimits& a, const policy::ResourceLimits& b) {
  const auto all = [](const policy::ResourceLimits& l) {
    return std::tie(l.max_memory_mb, l.memory_swap_max_mb, l.cpu_quota_percent, l.disk_read_bps_max,
                    l.disk_write_bps_max, l.net_bandwidth_mbps, l.pids_max, l.command_timeout,
                    l.session_timeout, l.idle_timeout);
  };
  return all(a) == all(b);
}

bool IsTimeout(const std::string& key) { return absl::EndsWith(key, "_timeout"); }

std::vector<std::string> LimitLines(const policy::ResourceLimits& limits, const MissingLimits& missing) {
  std::vector<std::string> lines;
  for (const std::string& key : GivenLimits(limits)) {
    if (missing.count(key) == 0) lines.push_back(Line(limits, key));
  }
  if (limits.command_timeout != absl::ZeroDuration()) {
    lines.push_back(absl::StrCat("command timeout ", absl::FormatDuration(limits.command_timeout),
                                 ", for exec requests only"));
  }
  return lines;
}

std::string MissingText(const MissingLimits& missing) {
  return absl::StrJoin(missing, ", ", [](std::string* out, const auto& entry) {
    absl::StrAppend(out, entry.first, " (", entry.second, ")");
  });
}

}  // namespace agentmon
