// The resources of all sessions: one timer, and one descriptor for the files that say that a limit was hit.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/task_runner.h"
#include "common/base/unique_fd.h"
#include "daemon/limits/session_resources.h"

namespace agentmon {

// Core thread. Nothing wakes it for a session that does nothing, but the ends of timeouts.
class ResourceKeeper {
 public:
  static absl::StatusOr<std::unique_ptr<ResourceKeeper>> Create(TaskRunner& core, const Clock& clock);
  ~ResourceKeeper();

  // `directory` of the session's cgroup, `age` of the session. Reports come from the core thread and never
  // from inside of a call of the keeper's, but for End. The answer lives until End.
  SessionResources* Begin(const std::string& session, const std::string& directory, absl::Duration age,
                          SessionResources::Reports reports);
  void SetLimits(const std::string& session, const policy::ResourceLimits& limits);
  // An act of the session; on the path of every event.
  void OnAct(SessionResources* resources, int64_t at_ns) {
    if (resources->OnAct(at_ns)) Arm(resources->NextNs());
  }
  // Tells the last hits; the usage up to now. After it nothing is reported.
  v1::Usage End(const std::string& session);

 private:
  struct Entry {
    std::unique_ptr<SessionResources> resources;
    std::map<std::string, int> watches;  // by file
    int looks_left = 0;                  // at changes of these
  };
  ResourceKeeper(TaskRunner& core, const Clock& clock, UniqueFd inotify)
      : core_(core), clock_(clock), inotify_(std::move(inotify)) {}
  void Arm(int64_t next_ns);
  void OnTimer();
  void OnInotify();
  void Watch(const std::string& session, Entry& entry);
  void Unwatch(Entry& entry);

  TaskRunner& core_;
  const Clock& clock_;
  UniqueFd inotify_;
  std::map<std::string, Entry> entries_;
  std::map<int, std::string> by_watch_;
  int64_t armed_ns_ = SessionResources::kNever;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace agentmon
