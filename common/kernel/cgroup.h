// One directory of the cgroup v2 hierarchy (cgroups(7), kernel 5.14 for cgroup.kill).
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/unique_fd.h"

namespace agentmon {

// Where cgroup2 is mounted, from /proc/self/mountinfo: /sys/fs/cgroup, or /sys/fs/cgroup/unified
// on hybrid hosts. NotFound when it is mounted nowhere.
absl::StatusOr<std::string> FindCgroup2Mount(const std::string& mountinfo_path = "/proc/self/mountinfo");

class Cgroup {
 public:
  // Makes the directory when it is not there (its parent must exist), root's, mode 0755.
  static absl::StatusOr<Cgroup> Create(const std::string& path);
  static absl::StatusOr<Cgroup> Open(const std::string& path);
  // That of this process.
  static absl::StatusOr<Cgroup> OpenOwn(const std::string& mount);

  // The kernel's number of it: what bpf_get_current_ancestor_cgroup_id answers.
  uint64_t id() const { return id_; }
  const std::string& path() const { return path_; }
  int fd() const { return fd_.get(); }

  // Moves the process with all its threads. NotFound when it is gone.
  absl::Status AddProcess(pid_t pid) const;
  // Every process at or below this directory.
  absl::StatusOr<std::vector<pid_t>> Processes() const;
  absl::StatusOr<bool> Populated() const;
  // SIGKILL to everything at or below, also to what forks meanwhile.
  absl::Status Kill() const;
  // Stops everything at or below where it is, also what comes later, or lets it go on. A frozen process can
  // be killed.
  absl::Status SetFrozen(bool frozen) const;
  absl::StatusOr<bool> Frozen() const;  // it was asked for
  // Removes the directories below and the directory itself; FailedPrecondition while processes are left.
  absl::Status RemoveTree() const;
  std::vector<std::string> Children() const;  // names

 private:
  Cgroup(std::string path, UniqueFd fd, uint64_t id) : path_(std::move(path)), fd_(std::move(fd)), id_(id) {}

  std::string path_;
  UniqueFd fd_;
  uint64_t id_;
};

}  // namespace agentmon
