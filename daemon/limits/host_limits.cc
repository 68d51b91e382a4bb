#include "daemon/limits/host_limits.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <map>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/status.h"
#include "common/kernel/cgroup_files.h"
#include "common/kernel/mountinfo.h"
#include "common/kernel/proc_fs.h"
#include "daemon/limits/bandwidth.h"

namespace agentmon {
namespace {

// The directories from the mount down to the base, the base included.
std::vector<std::string> DirectoriesDown(const std::string& mount, const std::string& base) {
  std::vector<std::string> directories{mount};
  for (absl::string_view name : absl::StrSplit(absl::StripPrefix(base, mount), '/', absl::SkipEmpty()))
    directories.push_back(absl::StrCat(directories.back(), "/", name));
  return directories;
}

// "8:1" of a mount; of its source where the file system has a number of its own (btrfs). Empty: no disk.
std::string DeviceOf(const Mount& mount) {
  if (!absl::StartsWith(mount.device, "0:")) return mount.device;
  struct stat source {};
  if (!absl::StartsWith(mount.source, "/dev/") || ::stat(mount.source.c_str(), &source) != 0 ||
      !S_ISBLK(source.st_mode)) {
    return "";
  }
  return absl::StrCat(major(source.st_rdev), ":", minor(source.st_rdev));
}

}  // namespace

absl::Status HostLimits::Enable(const std::string& controller) const {
  for (const std::string& directory : DirectoriesDown(places_.mount, places_.base)) {
    const CgroupFiles files(directory);
    if (files.HasWord("cgroup.subtree_control", controller)) continue;
    if (!files.HasWord("cgroup.controllers", controller)) {
      return absl::UnavailableError(
          absl::StrCat("cgroup v2 at ", places_.mount, " has no ", controller, " controller"));
    }
    RETURN_IF_ERROR(WithContext(files.Write("cgroup.subtree_control", "+" + controller),
                                absl::StrCat("enable the ", controller, " controller")));
  }
  return absl::OkStatus();
}

MissingLimits HostLimits::Missing(const policy::ResourceLimits& limits) const {
  MissingLimits missing;
  const bool rates = limits.disk_read_bps_max != 0 || limits.disk_write_bps_max != 0;
  const std::vector<std::string> disks = rates ? Disks() : std::vector<std::string>();
  if (rates && disks.empty()) {
    for (const std::string& key : GivenLimits(limits)) {
      if (absl::StartsWith(key, "disk_")) missing[key] = "no disk is known behind the mounts of this host";
    }
  }
  if (limits.net_bandwidth_mbps != 0) {
    if (const absl::Status can = CanLimitBandwidth(); !can.ok())
      missing["net_bandwidth_mbps"] = std::string(can.message());
  }
  std::map<std::string, absl::Status> enabled;
  for (const LimitSetting& setting : CgroupSettings(limits, disks)) {
    auto found = enabled.find(setting.controller);
    if (found == enabled.end()) found = enabled.emplace(setting.controller, Enable(setting.controller)).first;
    if (!found->second.ok()) missing[setting.key] = std::string(found->second.message());
  }
  return missing;
}

MissingLimits HostLimits::Apply(const std::string& directory, const policy::ResourceLimits& wanted,
                                const policy::ResourceLimits& before) const {
  MissingLimits missing = Missing(wanted);
  const CgroupFiles files(directory);
  const std::vector<std::string> disks = Disks();
  std::set<std::string> kept;
  const std::vector<LimitSetting> settings = CgroupSettings(wanted, disks);
  for (const LimitSetting& setting : settings) kept.insert(setting.file + setting.none);
  for (const LimitSetting& setting : CgroupSettings(before, disks)) {
    // A file that is not there limits nothing.
    if (kept.count(setting.file + setting.none) == 0) files.Write(setting.file, setting.none).IgnoreError();
  }
  for (const LimitSetting& setting : settings) {
    if (missing.count(setting.key) != 0) continue;
    const absl::Status written = files.Write(setting.file, setting.value);
    if (!written.ok()) missing[setting.key] = std::string(written.message());
  }
  const bool rate = wanted.net_bandwidth_mbps != 0 && missing.count("net_bandwidth_mbps") == 0;
  if (rate || before.net_bandwidth_mbps != 0) {
    const absl::Status set = SetBandwidth(directory, rate ? wanted.net_bandwidth_mbps : 0);
    if (!set.ok() && rate) missing["net_bandwidth_mbps"] = std::string(set.message());
  }
  return missing;
}

std::vector<std::string> HostLimits::Disks() const {
  std::set<std::string> disks;
  const auto mounts = ReadMountinfo(places_.mountinfo);
  if (!mounts.ok()) return {};
  for (const Mount& mount : *mounts) {
    const std::string device = DeviceOf(mount);
    const std::string entry = absl::StrCat(places_.sys, "/dev/block/", device);
    if (device.empty() || ::access(entry.c_str(), F_OK) != 0) continue;
    // A partition's directory lies in that of its disk.
    const bool is_partition = ::access((entry + "/partition").c_str(), F_OK) == 0;
    const auto number = ReadWholeFile(entry + (is_partition ? "/../dev" : "/dev"));
    if (number.ok()) disks.insert(std::string(absl::StripSuffix(*number, "\n")));
  }
  return {disks.begin(), disks.end()};
}

}  // namespace agentmon
