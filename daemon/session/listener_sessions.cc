#include "daemon/session/listener_sessions.h"

#include <signal.h>
#include <unistd.h>

#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/stable_hash.h"
#include "common/kernel/pid_fd.h"

namespace agentmon {
namespace {

constexpr uint64_t kListenerBit = uint64_t{1} << 61;  // the two above have meanings: AM_WATCHED, holder
constexpr size_t kSeenMost = 8192;                    // of one session, between two looks at who lives
constexpr int kForefathers = 256;

bool Runs(const ProcStat& stat) { return stat.state != 'Z' && stat.state != 'X'; }

}  // namespace

uint64_t ListenerNumber(absl::string_view session) {
  return kListenerBit | (StableHash(session) & (kListenerBit - 1));
}

void ListenerSessions::Saw(const std::string& session, pid_t pid, bool afresh) {
  absl::MutexLock lock(&mutex_);
  Births& seen = seen_[session];
  if (!afresh && seen.count(pid) != 0) return;
  if (seen.size() >= kSeenMost) {
    for (auto it = seen.begin(); it != seen.end();)
      it = proc_.Stat(it->first).ok() ? std::next(it) : seen.erase(it);
  }
  const auto stat = proc_.Stat(pid);
  if (stat.ok() && (seen.size() < kSeenMost || seen.count(pid) != 0)) seen[pid] = stat->start_ticks;
}

void ListenerSessions::Forget(const std::string& session) {
  absl::MutexLock lock(&mutex_);
  seen_.erase(session);
}

void ListenerSessions::SeekByEnvironment(const std::string& session) {
  const std::string wanted = absl::StrCat("AGENTMON_SESSION=", session);
  const int own_filters = proc_.SeccompFilters(getpid()).value_or(-1);
  for (const pid_t pid : proc_.Pids()) {
    const auto environment = ReadWholeFile(absl::StrCat(proc_.root(), "/", pid, "/environ"));
    if (!environment.ok() || proc_.SeccompFilters(pid).value_or(-1) <= own_filters) continue;
    for (const absl::string_view variable : absl::StrSplit(*environment, '\0')) {
      if (variable == wanted) Saw(session, pid, false);
    }
  }
}

std::vector<std::pair<pid_t, uint64_t>> ListenerSessions::Find(const std::string& session) {
  absl::MutexLock lock(&mutex_);
  std::vector<std::pair<pid_t, uint64_t>> found;
  const auto entry = seen_.find(session);
  if (entry == seen_.end()) return found;
  std::map<pid_t, ProcStat> all;
  std::multimap<pid_t, pid_t> children;
  for (const pid_t pid : proc_.Pids()) {
    auto stat = proc_.Stat(pid);
    if (!stat.ok()) continue;
    children.emplace(stat->parent, pid);
    all.emplace(pid, *std::move(stat));
  }
  std::vector<pid_t> todo;
  for (auto it = entry->second.begin(); it != entry->second.end();) {
    const auto stat = all.find(it->first);
    const bool same = stat != all.end() && stat->second.start_ticks == it->second;
    if (same) todo.push_back(it->first);
    it = same ? std::next(it) : entry->second.erase(it);
  }
  std::set<pid_t> members;
  while (!todo.empty()) {
    const pid_t pid = todo.back();
    todo.pop_back();
    if (!members.insert(pid).second) continue;
    const ProcStat& stat = all.at(pid);
    if (Runs(stat)) found.emplace_back(pid, stat.start_ticks);
    // Kept: when its forefathers are gone, it is the one to begin with.
    if (entry->second.size() < kSeenMost) entry->second[pid] = stat.start_ticks;
    const auto [first, last] = children.equal_range(pid);
    for (auto child = first; child != last; ++child) todo.push_back(child->second);
  }
  return found;
}

std::vector<pid_t> ListenerSessions::Processes(const std::string& session) {
  std::vector<pid_t> pids;
  for (const auto& [pid, birth] : Find(session)) pids.push_back(pid);
  return pids;
}

std::string ListenerSessions::SessionOf(pid_t pid) const {
  absl::MutexLock lock(&mutex_);
  for (int i = 0; i < kForefathers && pid > 1; ++i) {
    const auto stat = proc_.Stat(pid);
    if (!stat.ok()) return "";
    for (const auto& [session, seen] : seen_) {
      const auto it = seen.find(pid);
      if (it != seen.end() && it->second == stat->start_ticks) return session;
    }
    pid = stat->parent;
  }
  return "";
}

void ListenerSessions::Signal(const std::string& session, int signal) {
  for (const auto& [pid, birth] : Find(session)) {
    const auto pidfd = PidFd::Open(pid);
    if (!pidfd.ok()) continue;
    const auto stat = proc_.Stat(pid);
    if (!stat.ok() || stat->start_ticks != birth) continue;
    pidfd->Signal(signal).IgnoreError();
    if (signal == SIGTERM) pidfd->Signal(SIGCONT).IgnoreError();  // a stopped process must see it
  }
}

}  // namespace agentmon
