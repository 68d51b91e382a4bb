#include "daemon/limits/resource_keeper.h"

#include <errno.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace agentmon {
namespace {

// The kernel says of these that they changed, at most every 10 ms (cgroup_file_notify).
constexpr const char* kFilesOfHits[] = {"memory.events", "memory.swap.events", "pids.events"};
// Of one hit more follow, and a process that the kernel ends for want of memory may be the session's last:
// the next changes are read as well, before the window's end, when the directory may be gone.
constexpr int kLooksInWindow = 20;
// A timer stands still while the machine sleeps, a timeout does not: looked at again after this time.
constexpr int64_t kLongestSleepNs = 600'000'000'000;

}  // namespace

absl::StatusOr<std::unique_ptr<ResourceKeeper>> ResourceKeeper::Create(TaskRunner& core, const Clock& clock) {
  UniqueFd inotify(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  if (!inotify.valid()) return ErrnoStatus(errno, "inotify for the limits of sessions");
  auto self = std::unique_ptr<ResourceKeeper>(new ResourceKeeper(core, clock, std::move(inotify)));
  RETURN_IF_ERROR(core.WatchFd(self->inotify_.get(), [raw = self.get()] { raw->OnInotify(); }));
  return self;
}

ResourceKeeper::~ResourceKeeper() {
  *alive_ = false;
  core_.UnwatchFd(inotify_.get());
}

SessionResources* ResourceKeeper::Begin(const std::string& session, const std::string& directory,
                                        absl::Duration age, SessionResources::Reports reports) {
  const int64_t now = clock_.BootNs();
  // What a report leads to may end the session, which must not happen below its own Tick.
  const auto expired = [this, alive = alive_, tell = reports.expired](const std::string& reason) {
    core_.Post([alive, tell, reason] {
      if (*alive) tell(reason);
    });
  };
  reports.expired = expired;
  Entry& entry = entries_[session];
  entry.resources = std::make_unique<SessionResources>(directory, now - absl::ToInt64Nanoseconds(age), now,
                                                       std::move(reports));
  return entry.resources.get();
}

void ResourceKeeper::SetLimits(const std::string& session, const policy::ResourceLimits& limits) {
  const auto it = entries_.find(session);
  if (it == entries_.end()) return;
  it->second.resources->SetLimits(limits, clock_.BootNs());
  // Files of controllers that were enabled just now are there by now.
  if (it->second.resources->HitsAwaited()) Watch(session, it->second);
  Arm(it->second.resources->NextNs());
}

v1::Usage ResourceKeeper::End(const std::string& session) {
  const auto it = entries_.find(session);
  if (it == entries_.end()) return {};
  Unwatch(it->second);
  const v1::Usage usage = it->second.resources->Finish();
  entries_.erase(it);
  return usage;
}

void ResourceKeeper::Arm(int64_t next_ns) {
  if (next_ns == SessionResources::kNever) return;
  const int64_t now = clock_.BootNs();
  next_ns = std::clamp(next_ns, now, now + kLongestSleepNs);
  if (armed_ns_ <= next_ns) return;  // an earlier timer runs, and will arm this one
  armed_ns_ = next_ns;
  core_.PostAfter(absl::Nanoseconds(next_ns - now), [this, alive = alive_] {
    if (*alive) OnTimer();
  });
}

void ResourceKeeper::OnTimer() {
  const int64_t now = clock_.BootNs();
  armed_ns_ = SessionResources::kNever;
  int64_t next = SessionResources::kNever;
  for (auto& [session, entry] : entries_) {
    SessionResources& resources = *entry.resources;
    const bool waited = !resources.HitsAwaited();
    if (resources.NextNs() <= now) resources.Tick(now);
    if (waited && resources.HitsAwaited()) Watch(session, entry);
    next = std::min(next, resources.NextNs());
  }
  Arm(next);
}

void ResourceKeeper::Watch(const std::string& session, Entry& entry) {
  for (const char* file : kFilesOfHits) {
    const std::string path = absl::StrCat(entry.resources->files().directory(), "/", file);
    const int watch = ::inotify_add_watch(inotify_.get(), path.c_str(), IN_MODIFY);
    if (watch < 0) continue;  // the controller is not there, so nothing is limited
    entry.watches[file] = watch;
    by_watch_[watch] = session;
  }
  entry.looks_left = kLooksInWindow;
  // What was hit before they were watched.
  entry.resources->OnHit(clock_.BootNs());
}

void ResourceKeeper::Unwatch(Entry& entry) {
  for (const auto& [file, watch] : entry.watches) {
    ::inotify_rm_watch(inotify_.get(), watch);
    by_watch_.erase(watch);
  }
  entry.watches.clear();
}

void ResourceKeeper::OnInotify() {
  alignas(inotify_event) std::array<char, 4096> buffer;
  std::set<std::string> changed;
  ssize_t n;
  while ((n = ::read(inotify_.get(), buffer.data(), buffer.size())) > 0) {
    for (ssize_t at = 0; at < n;) {
      const auto* event = reinterpret_cast<const inotify_event*>(buffer.data() + at);
      at += static_cast<ssize_t>(sizeof(inotify_event) + event->len);
      const auto session = by_watch_.find(event->wd);
      if (session != by_watch_.end()) changed.insert(session->second);
    }
  }
  for (const std::string& session : changed) {
    Entry& entry = entries_.at(session);
    entry.resources->OnHit(clock_.BootNs());
    // A limit that is hit all the time wakes nobody for long.
    if (!entry.resources->HitsAwaited() && --entry.looks_left <= 0) Unwatch(entry);
    Arm(entry.resources->NextNs());
  }
}

}  // namespace agentmon
