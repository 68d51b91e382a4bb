// What a policy's resource_limits are, as control files of a cgroup and in plain words. Pure.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/policy/rule.h"

namespace agentmon {

// Keys of resource_limits that cannot be set, and why.
using MissingLimits = std::map<std::string, std::string>;

struct LimitSetting {
  std::string key;         // "max_memory_mb"
  std::string controller;  // "memory"
  std::string file;        // "memory.max"
  std::string value;       // "8589934592"
  std::string none;        // what lifts it: "max"
};

// What a session's directory is given. `disks`: "8:0", ...: rates hold on each of them.
std::vector<LimitSetting> CgroupSettings(const policy::ResourceLimits& limits,
                                         const std::vector<std::string>& disks);

// Keys that are given, but command_timeout, which is about requests of a client and not about a session.
std::vector<std::string> GivenLimits(const policy::ResourceLimits& limits);
bool SameLimits(const policy::ResourceLimits& a, const policy::ResourceLimits& b);
// The key is one of the timeouts, which need nothing of the host.
bool IsTimeout(const std::string& key);

// Those that hold, one line each: "memory 8192 MiB".
std::vector<std::string> LimitLines(const policy::ResourceLimits& limits, const MissingLimits& missing);
// "max_memory_mb (why), pids_max (why)"
std::string MissingText(const MissingLimits& missing);

}  // namespace agentmon
