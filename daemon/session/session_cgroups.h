// The instance's cgroups: CGROUP2/agentmon-INSTANCE/SESSION; or, where sessions are scopes of systemd,
// CGROUP2/SLICE/SLICE/agentmon-SESSION.scope and, without a unit, CGROUP2/agentmon-INSTANCE/sessions/SESSION.
// All of one instance are equally deep, which is how BPF programs find them.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/task_runner.h"
#include "common/kernel/cgroup.h"

namespace agentmon {

// True for a path in the cgroup2 hierarchy that lies in a session of any instance.
bool IsSessionCgroupPath(absl::string_view path);
// The session of a path at or below its scope; empty when it is none.
std::string SessionOfScope(absl::string_view path);
std::string ScopeName(const std::string& session);  // "agentmon-ID.scope"

// Core thread, but for InSession. Makes the base directory at creation and removes it at the end when
// no session is left.
class SessionCgroups {
 public:
  // scopes: sessions may be scopes of systemd.
  static absl::StatusOr<std::unique_ptr<SessionCgroups>> Create(TaskRunner& core, const std::string& mount,
                                                                const std::string& instance,
                                                                bool scopes = false);
  // Makes none: for sessions that something else holds. The base is where cgroup2 is mounted.
  static absl::StatusOr<std::unique_ptr<SessionCgroups>> None(TaskRunner& core, const std::string& mount);
  ~SessionCgroups();

  absl::StatusOr<Cgroup> Make(const std::string& session);
  // Sessions that have a directory.
  std::vector<std::string> Existing();
  // The session is a scope of systemd, in this directory below the cgroup2 mount; until Forget.
  void UseScope(const std::string& session, const std::string& path) { scopes_[session] = path; }
  void Forget(const std::string& session) { scopes_.erase(session); }
  bool IsScope(const std::string& session) const { return scopes_.count(session) != 0; }
  absl::StatusOr<Cgroup> Open(const std::string& session) const;
  // Calls on_change whenever the cgroup may have become empty, until Unwatch.
  absl::Status Watch(const std::string& session, Task on_change);
  void Unwatch(const std::string& session);
  // Id of the session that the process is in; empty when in none of this instance. Any thread.
  std::string SessionOf(absl::string_view cgroup_path) const;
  const Cgroup& base() const { return base_; }
  // Where cgroup2 is mounted.
  std::string mount() const { return base_.path().substr(0, base_.path().size() - relative_.size()); }
  // Of a session, below the cgroup2 mount.
  std::string RelativePath(const std::string& session) const;

 private:
  SessionCgroups(TaskRunner& core, Cgroup base, std::string relative, bool with_scopes, UniqueFd inotify)
      : core_(core),
        base_(std::move(base)),
        relative_(std::move(relative)),
        with_scopes_(with_scopes),
        inotify_(std::move(inotify)) {}
  void FindScopes(const std::string& slice);
  void OnInotify();

  struct Watched {
    int wd;
    Task on_change;
  };
  TaskRunner& core_;
  Cgroup base_;
  const std::string relative_;  // "/agentmon-main"
  const bool with_scopes_;
  std::map<std::string, std::string> scopes_;  // by session: its path below the mount
  UniqueFd inotify_;
  std::map<std::string, Watched> watched_;
  std::map<int, std::string> by_wd_;
};

}  // namespace agentmon
