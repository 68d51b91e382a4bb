#include "daemon/session/session_cgroups.h"

#include <errno.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <array>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/status.h"

namespace agentmon {

bool IsSessionCgroupPath(absl::string_view path) {
  if (!absl::ConsumePrefix(&path, "/agentmon-")) return false;
  const size_t slash = path.find('/');
  return slash != absl::string_view::npos && slash + 1 < path.size();
}

absl::StatusOr<std::unique_ptr<SessionCgroups>> SessionCgroups::Create(TaskRunner& core,
                                                                       const std::string& mount,
                                                                       const std::string& instance) {
  const std::string relative = absl::StrCat("/agentmon-", instance);
  ASSIGN_OR_RETURN(Cgroup base, Cgroup::Create(mount + relative));
  UniqueFd inotify(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  if (!inotify.valid()) return ErrnoStatus(errno, "inotify");
  auto self = std::unique_ptr<SessionCgroups>(
      new SessionCgroups(core, std::move(base), relative, std::move(inotify)));
  RETURN_IF_ERROR(core.WatchFd(self->inotify_.get(), [raw = self.get()] { raw->OnInotify(); }));
  return self;
}

SessionCgroups::~SessionCgroups() {
  core_.UnwatchFd(inotify_.get());
  ::rmdir(base_.path().c_str());  // fails while sessions are left, as it should
}

absl::StatusOr<Cgroup> SessionCgroups::Make(const std::string& session) {
  return Cgroup::Create(absl::StrCat(base_.path(), "/", session));
}

absl::StatusOr<Cgroup> SessionCgroups::Open(const std::string& session) const {
  return Cgroup::Open(absl::StrCat(base_.path(), "/", session));
}

absl::Status SessionCgroups::Watch(const std::string& session, Task on_change) {
  const std::string path = absl::StrCat(base_.path(), "/", session, "/cgroup.events");
  const int wd = ::inotify_add_watch(inotify_.get(), path.c_str(), IN_MODIFY);
  if (wd < 0) return ErrnoStatus(errno, absl::StrCat("watch ", path));
  watched_[session] = {wd, std::move(on_change)};
  by_wd_[wd] = session;
  return absl::OkStatus();
}

void SessionCgroups::Unwatch(const std::string& session) {
  const auto it = watched_.find(session);
  if (it == watched_.end()) return;
  ::inotify_rm_watch(inotify_.get(), it->second.wd);
  by_wd_.erase(it->second.wd);
  watched_.erase(it);
}

void SessionCgroups::OnInotify() {
  alignas(inotify_event) std::array<char, 16384> buffer;
  ssize_t n;
  while ((n = ::read(inotify_.get(), buffer.data(), buffer.size())) > 0) {
    for (ssize_t at = 0; at < n;) {
      const auto* event = reinterpret_cast<const inotify_event*>(buffer.data() + at);
      at += static_cast<ssize_t>(sizeof(inotify_event) + event->len);
      const auto wd = by_wd_.find(event->wd);
      if (wd == by_wd_.end()) continue;
      const Task on_change = watched_.at(wd->second).on_change;  // a copy: it may unwatch itself
      on_change();
    }
  }
}

std::string SessionCgroups::SessionOf(absl::string_view cgroup_path) const {
  if (!absl::ConsumePrefix(&cgroup_path, relative_) || !absl::ConsumePrefix(&cgroup_path, "/")) return "";
  return std::string(cgroup_path.substr(0, cgroup_path.find('/')));
}

std::string SessionCgroups::RelativePath(const std::string& session) const {
  return absl::StrCat(relative_, "/", session);
}

}  // namespace agentmon
