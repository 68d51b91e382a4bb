#include "daemon/policy/policy_watcher.h"

#include <errno.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/base/status.h"

namespace agentmon {
namespace {

namespace fs = std::filesystem;

constexpr uint32_t kChanges = IN_CLOSE_WRITE | IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO |
                              IN_ATTRIB | IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR | IN_EXCL_UNLINK;
constexpr int kMostRounds = 10;

}  // namespace

absl::StatusOr<std::unique_ptr<PolicyWatcher>> PolicyWatcher::Create(TaskRunner& core, PolicyPlaces places,
                                                                     absl::Duration settle,
                                                                     std::function<void()> changed) {
  UniqueFd inotify(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  if (!inotify.valid()) return ErrnoStatus(errno, "watch the policy files");
  std::unique_ptr<PolicyWatcher> watcher(
      new PolicyWatcher(core, std::move(places), settle, std::move(changed), std::move(inotify)));
  watcher->AddWatches();
  RETURN_IF_ERROR(core.WatchFd(watcher->inotify_.get(), [w = watcher.get()] { w->OnReadable(); }));
  return watcher;
}

PolicyWatcher::~PolicyWatcher() {
  *alive_ = false;
  core_.UnwatchFd(inotify_.get());
}

// Adding a watch again to the same directory changes nothing, so this is repeated after each change.
void PolicyWatcher::AddWatches() {
  for (const std::string& directory : {places_.floor_dir, places_.policies_dir, places_.shipped_dir}) {
    AddDirectory(directory);
    std::error_code error;
    for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
      std::error_code none;
      if (!it->is_symlink(none)) continue;
      const fs::path target = fs::canonical(it->path(), none);
      if (!none)
        AddDirectory(fs::is_directory(target, none) ? target.string() : target.parent_path().string());
    }
  }
}

void PolicyWatcher::AddDirectory(const std::string& directory) {
  fs::path path = directory;
  while (::inotify_add_watch(inotify_.get(), path.c_str(), kChanges) < 0) {
    if ((errno != ENOENT && errno != ENOTDIR) || path == path.root_path()) {
      const absl::Status status = ErrnoStatus(errno, absl::StrCat("watch ", path.string()));
      LogWarning(status.message(), "; changes there need 'agentmon policy reload'");
      return;
    }
    path = path.parent_path();
  }
}

void PolicyWatcher::OnReadable() {
  alignas(inotify_event) char buffer[16384];
  while (::read(inotify_.get(), buffer, sizeof buffer) > 0) ++changes_;
  if (settling_) return;
  settling_ = true;
  rounds_ = 0;
  Settle();
}

void PolicyWatcher::Settle() {
  core_.PostAfter(settle_, [this, alive = alive_, seen = changes_] {
    if (!*alive) return;
    if (changes_ != seen && ++rounds_ < kMostRounds) return Settle();
    settling_ = false;
    AddWatches();
    changed_();
  });
}

}  // namespace agentmon
