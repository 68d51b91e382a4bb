// Says that root's policy files may have changed.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/task_runner.h"
#include "common/base/unique_fd.h"
#include "daemon/policy/policy_library.h"

namespace agentmon {

// inotify on the directories of the places, on those that hold the targets of links in them (an editor's
// rename, a swapped link, a ConfigMap's ..data), and where a directory is not there, on the nearest one
// above it. Core thread.
class PolicyWatcher {
 public:
  // changed runs once things have been quiet for `settle`, at most 10 times that after the first change.
  static absl::StatusOr<std::unique_ptr<PolicyWatcher>> Create(TaskRunner& core, PolicyPlaces places,
                                                               absl::Duration settle,
                                                               std::function<void()> changed);
  ~PolicyWatcher();

 private:
  PolicyWatcher(TaskRunner& core, PolicyPlaces places, absl::Duration settle, std::function<void()> changed,
                UniqueFd inotify)
      : core_(core),
        places_(std::move(places)),
        settle_(settle),
        changed_(std::move(changed)),
        inotify_(std::move(inotify)) {}
  void AddWatches();
  void AddDirectory(const std::string& directory);
  void OnReadable();
  void Settle();

  TaskRunner& core_;
  const PolicyPlaces places_;
  const absl::Duration settle_;
  const std::function<void()> changed_;
  UniqueFd inotify_;
  uint64_t changes_ = 0;
  bool settling_ = false;
  int rounds_ = 0;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace agentmon
