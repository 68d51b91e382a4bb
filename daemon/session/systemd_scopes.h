// Sessions as transient scopes of the host's service manager (org.freedesktop.systemd1(5)), over its bus.
#pragma once

#include <sys/types.h>
#include <systemd/sd-bus.h>

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/base/task_runner.h"
#include "common/policy/rule.h"

namespace agentmon {

struct ScopeRequest {
  std::string unit;         // "agentmon-ID.scope"
  std::string slice;        // "user-1000.slice"
  std::string description;  // what `systemctl` shows
  pid_t pid = 0;            // the first process: a scope begins with one
  policy::ResourceLimits limits;
  std::vector<std::string> disks;  // "8:0": rates hold on each of them
};

// Core thread, all of it; nothing waits. The bus is opened when it is first needed, and again after it was
// lost.
class SystemdScopes {
 public:
  // How it ended. Unavailable: nothing was made, another way may be gone. Any other error: the process may be
  // in the scope by now, or get there later.
  using Done = std::function<void(absl::Status)>;
  using OpenBus = std::function<int(sd_bus**)>;

  // open: sd_bus_open_system, or another one in tests.
  SystemdScopes(TaskRunner& core, sd_event* loop, OpenBus open);
  ~SystemdScopes();

  void Start(const ScopeRequest& request, Done done);
  // Lets the unit hold to other limits; those that are not given are lifted. What fails is logged, and tried
  // again until the manager has it: with the old ones it would undo, at its next reload, what the kernel has.
  void SetLimits(const std::string& unit, const policy::ResourceLimits& limits,
                 const std::vector<std::string>& disks);
  // Why the bus cannot be used; empty when it could be the last time.
  const std::string& problem() const { return problem_; }

 private:
  struct Job {
    SystemdScopes* owner;
    std::string unit;
    std::string path;  // known once the manager has answered
    Done done;
  };

  struct Limits {
    policy::ResourceLimits limits;
    std::vector<std::string> disks;
  };

  absl::Status Open();
  void Close(const std::string& why);
  void Finish(Job* job, const absl::Status& status);
  absl::Status TrySetLimits(const std::string& unit, const Limits& wanted);
  void RetryLimitsLater();
  void RetryLimits();
  static int OnStarted(sd_bus_message* reply, void* userdata, sd_bus_error* error);
  static int OnJobRemoved(sd_bus_message* message, void* userdata, sd_bus_error* error);
  static int OnDisconnected(sd_bus_message* message, void* userdata, sd_bus_error* error);

  TaskRunner& core_;
  sd_event* const loop_;
  const OpenBus open_;
  sd_bus* bus_ = nullptr;
  std::string problem_;
  std::map<Job*, std::unique_ptr<Job>> jobs_;
  std::map<std::string, Limits> owed_;  // by unit: what the manager has not been told
  bool retry_is_due_ = false;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace agentmon
