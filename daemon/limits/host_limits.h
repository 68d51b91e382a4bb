// Sets limits on a session's directory, as far as this host can.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/policy/rule.h"
#include "daemon/limits/limit_plan.h"

namespace agentmon {

// Any thread; writes control files, and attaches programs of its own to a directory.
class HostLimits {
 public:
  struct Places {
    std::string mount;  // of cgroup2
    std::string base;   // at or below it: sessions' directories are made here
    std::string mountinfo = "/proc/self/mountinfo";
    std::string sys = "/sys";
  };
  explicit HostLimits(Places places) : places_(std::move(places)) {}

  // What cannot be set here. Enables the controllers that are needed and available, from the mount down to
  // the base, and leaves them enabled: nobody knows who else uses them by now.
  MissingLimits Missing(const policy::ResourceLimits& limits) const;
  // Makes a session's directory hold to `wanted`, where it held to `before`. Answers what could not be set.
  // Waits when memory in use is above its new limit, so for a session with processes not on the core thread.
  MissingLimits Apply(const std::string& directory, const policy::ResourceLimits& wanted,
                      const policy::ResourceLimits& before) const;
  // The disks behind the mounts of this host, "8:0": whole ones, since the kernel limits no partition.
  std::vector<std::string> Disks() const;

 private:
  absl::Status Enable(const std::string& controller) const;

  const Places places_;
};

}  // namespace agentmon
