#include "daemon/probe/served_places.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace agentmon {
namespace {

constexpr int kLinksMax = 40;  // as the kernel's MAXSYMLINKS

// The components of a name, the first one last.
void PutBack(absl::string_view name, std::vector<std::string>& left) {
  const std::vector<std::string> parts = absl::StrSplit(name, '/', absl::SkipEmpty());
  left.insert(left.end(), parts.rbegin(), parts.rend());
}

bool IsOn(int fd, const std::set<uint64_t>& mounts) {
  struct statx st {};
  return statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, 0, &st) == 0 && mounts.count(st.stx_mnt_id) != 0;
}

}  // namespace

void ServedPlaces::Set(uint64_t cgroup_id, std::set<uint64_t> mounts) {
  absl::MutexLock lock(&mutex_);
  if (mounts.empty()) {
    mounts_.erase(cgroup_id);
  } else {
    mounts_[cgroup_id] = std::move(mounts);
  }
}

void ServedPlaces::Forget(uint64_t cgroup_id) { Set(cgroup_id, {}); }

bool ServedPlaces::Meets(uint64_t cgroup_id, pid_t tid, pid_t tgid, const CallerName& name) const {
  std::set<uint64_t> mounts;
  {
    absl::MutexLock lock(&mutex_);
    const auto found = mounts_.find(cgroup_id);
    if (found == mounts_.end()) return false;
    mounts = found->second;
  }
  const CallerBase base = OpenCallerBase(tid, tgid, name);
  if (base.error != 0) return false;
  UniqueFd at(fcntl(base.start.get(), F_DUPFD_CLOEXEC, 3));
  if (IsOn(at.get(), mounts)) return true;
  std::vector<std::string> left;
  PutBack(base.name, left);
  for (int links = 0; !left.empty();) {
    UniqueFd next(openat(at.get(), left.back().c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
    if (!next.valid()) return false;
    if (IsOn(next.get(), mounts)) return true;
    left.pop_back();
    char target[PATH_MAX];
    const ssize_t n = readlinkat(next.get(), "", target, sizeof(target));
    if (n <= 0) {
      at = std::move(next);
      continue;
    }
    if (++links > kLinksMax) return false;
    const absl::string_view text(target, static_cast<size_t>(n));
    PutBack(text, left);
    if (!absl::StartsWith(text, "/")) continue;
    at = UniqueFd(fcntl(base.root.get(), F_DUPFD_CLOEXEC, 3));
    if (IsOn(at.get(), mounts)) return true;
  }
  return false;
}

}  // namespace agentmon
