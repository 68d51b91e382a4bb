#include "daemon/probe/open_dedupe.h"

#include <tuple>
#include <utility>

#include "absl/hash/hash.h"

namespace agentmon {
namespace {

size_t Key(uint64_t cgroup_id, pid_t tgid, absl::string_view path) {
  return absl::Hash<std::tuple<uint64_t, pid_t, absl::string_view>>()({cgroup_id, tgid, path});
}

}  // namespace

void OpenDedupe::Age(int64_t now_ns) {
  if (now_ns - recent_since_ns_ < kRemembered_ns) return;
  previous_.clear();
  if (now_ns - recent_since_ns_ < 2 * kRemembered_ns) std::swap(previous_, recent_);
  recent_.clear();
  recent_since_ns_ = now_ns;
}

void OpenDedupe::OpenedForWriting(uint64_t cgroup_id, pid_t tgid, absl::string_view path, int64_t now_ns) {
  absl::MutexLock lock(&mutex_);
  Age(now_ns);
  if (recent_.size() < kMax) ++recent_[Key(cgroup_id, tgid, path)];
}

bool OpenDedupe::TakeOne(Counts& counts, size_t key) {
  const auto found = counts.find(key);
  if (found == counts.end()) return false;
  if (--found->second == 0) counts.erase(found);
  return true;
}

bool OpenDedupe::TakeOpenedForWriting(uint64_t cgroup_id, pid_t tgid, absl::string_view path,
                                      int64_t now_ns) {
  const size_t key = Key(cgroup_id, tgid, path);
  absl::MutexLock lock(&mutex_);
  Age(now_ns);
  return TakeOne(previous_, key) || TakeOne(recent_, key);
}

}  // namespace agentmon
