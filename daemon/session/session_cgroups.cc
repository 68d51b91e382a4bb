#include "daemon/session/session_cgroups.h"

#include <errno.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <array>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/status.h"

namespace agentmon {
namespace {

constexpr char kBelow[] = "/sessions";
constexpr char kSystemSlices[] = "/agentmon.slice/agentmon-sessions.slice";

}  // namespace

std::string ScopeName(const std::string& session) { return absl::StrCat("agentmon-", session, ".scope"); }

// "/user.slice/user-UID.slice/agentmon-ID.scope", or the same in kSystemSlices. Only root makes units there.
std::string SessionOfScope(absl::string_view path) {
  const std::vector<absl::string_view> names = absl::StrSplit(path, '/');
  if (names.size() < 4) return "";
  const bool of_user = names[1] == "user.slice" && absl::StartsWith(names[2], "user-");
  if (!of_user && absl::StrCat("/", names[1], "/", names[2]) != kSystemSlices) return "";
  absl::string_view unit = names[3];
  if (!absl::ConsumePrefix(&unit, "agentmon-") || !absl::ConsumeSuffix(&unit, ".scope")) return "";
  return std::string(unit);
}

bool IsSessionCgroupPath(absl::string_view path) {
  if (!SessionOfScope(path).empty()) return true;
  if (!absl::ConsumePrefix(&path, "/agentmon-")) return false;
  const size_t slash = path.find('/');
  return slash != absl::string_view::npos && slash + 1 < path.size();
}

absl::StatusOr<std::unique_ptr<SessionCgroups>> SessionCgroups::Create(TaskRunner& core,
                                                                       const std::string& mount,
                                                                       const std::string& instance,
                                                                       bool scopes) {
  std::string relative = absl::StrCat("/agentmon-", instance);
  ASSIGN_OR_RETURN(Cgroup base, Cgroup::Create(mount + relative));
  if (scopes) {
    relative += kBelow;  // as deep as the scopes
    ASSIGN_OR_RETURN(base, Cgroup::Create(mount + relative));
  }
  UniqueFd inotify(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  if (!inotify.valid()) return ErrnoStatus(errno, "inotify");
  auto self = std::unique_ptr<SessionCgroups>(
      new SessionCgroups(core, std::move(base), relative, scopes, std::move(inotify)));
  RETURN_IF_ERROR(core.WatchFd(self->inotify_.get(), [raw = self.get()] { raw->OnInotify(); }));
  return self;
}

absl::StatusOr<std::unique_ptr<SessionCgroups>> SessionCgroups::None(TaskRunner& core,
                                                                     const std::string& mount) {
  ASSIGN_OR_RETURN(Cgroup base, Cgroup::Open(mount));
  return std::unique_ptr<SessionCgroups>(new SessionCgroups(core, std::move(base), "", false, UniqueFd()));
}

SessionCgroups::~SessionCgroups() {
  if (!inotify_.valid()) return;
  core_.UnwatchFd(inotify_.get());
  ::rmdir(base_.path().c_str());  // fails while sessions are left, as it should
  if (with_scopes_) ::rmdir(std::string(absl::StripSuffix(base_.path(), kBelow)).c_str());
}

absl::StatusOr<Cgroup> SessionCgroups::Make(const std::string& session) {
  return Cgroup::Create(absl::StrCat(base_.path(), "/", session));
}

absl::StatusOr<Cgroup> SessionCgroups::Open(const std::string& session) const {
  return Cgroup::Open(mount() + RelativePath(session));
}

std::vector<std::string> SessionCgroups::Existing() {
  if (!inotify_.valid()) return {};
  std::vector<std::string> sessions = base_.Children();
  if (!with_scopes_) return sessions;
  FindScopes(kSystemSlices);
  const auto users = Cgroup::Open(mount() + "/user.slice");
  if (users.ok()) {
    for (const std::string& slice : users->Children()) FindScopes("/user.slice/" + slice);
  }
  for (const auto& [session, path] : scopes_) sessions.push_back(session);
  return sessions;
}

void SessionCgroups::FindScopes(const std::string& slice) {
  const auto directory = Cgroup::Open(mount() + slice);
  if (!directory.ok()) return;
  for (const std::string& name : directory->Children()) {
    const std::string path = absl::StrCat(slice, "/", name);
    if (const std::string session = SessionOfScope(path); !session.empty()) UseScope(session, path);
  }
}

absl::Status SessionCgroups::Watch(const std::string& session, Task on_change) {
  const std::string path = absl::StrCat(mount(), RelativePath(session), "/cgroup.events");
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
  if (!inotify_.valid()) return "";
  if (with_scopes_) {
    std::string session = SessionOfScope(cgroup_path);
    if (!session.empty()) return session;
  }
  if (!absl::ConsumePrefix(&cgroup_path, relative_) || !absl::ConsumePrefix(&cgroup_path, "/")) return "";
  return std::string(cgroup_path.substr(0, cgroup_path.find('/')));
}

std::string SessionCgroups::RelativePath(const std::string& session) const {
  const auto scope = scopes_.find(session);
  return scope != scopes_.end() ? scope->second : absl::StrCat(relative_, "/", session);
}

}  // namespace agentmon
