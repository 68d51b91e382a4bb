#include "daemon/limits/session_resources.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "daemon/limits/bandwidth.h"

namespace agentmon {
namespace {

constexpr int64_t kSecondNs = 1'000'000'000;
constexpr int64_t kHitWindowNs = 10 * kSecondNs;
constexpr int64_t kExitLookNs = kSecondNs / 50;
constexpr int64_t kIdleStepNs = 10 * kSecondNs;
constexpr int64_t kLeastCpuNs = 1'000'000;
constexpr int64_t kFirstQuotaLookNs = kSecondNs;

// More than a thousandth of one processor: waiting programs with timers of their own use less.
bool Worked(uint64_t cpu_ns, int64_t elapsed_ns) {
  return static_cast<int64_t>(cpu_ns) > std::max(elapsed_ns / 1000, kLeastCpuNs);
}

// How long after one look at the processor time the next one comes.
int64_t IdleStep(absl::Duration idle) {
  const int64_t whole = absl::ToInt64Nanoseconds(idle);
  return std::min(std::max(whole / 4, kIdleStepNs), whole);
}

}  // namespace

SessionResources::SessionResources(const std::string& directory, int64_t began_ns, int64_t now_ns,
                                   Reports reports)
    : files_(directory),
      began_ns_(began_ns),
      reports_(std::move(reports)),
      told_(ReadLimitHits(files_)),
      seen_(told_),
      last_act_ns_(now_ns),
      quiet_since_ns_(now_ns),
      looked_ns_(now_ns),
      looked_cpu_ns_(ReadCpuNs(files_)),
      snapshot_from_ns_(now_ns),
      snapshot_cpu_ns_(looked_cpu_ns_) {}

void SessionResources::SetLimits(const policy::ResourceLimits& limits, int64_t now_ns) {
  const absl::Duration zero = absl::ZeroDuration();
  // What an earlier daemon's programs have counted, it has told.
  if (limits.net_bandwidth_mbps != 0 && limits_.net_bandwidth_mbps == 0)
    told_.held_back = seen_.held_back = PacketsHeldBack(files_.directory());
  limits_ = limits;
  session_end_ns_ =
      limits.session_timeout == zero ? kNever : began_ns_ + absl::ToInt64Nanoseconds(limits.session_timeout);
  // No file says that processors or the network were taken away, and a short session's files may be gone
  // before its end is known: they are looked at while it is young. Later its snapshots do that.
  quota_step_ns_ = kFirstQuotaLookNs;
  const bool quota = limits.cpu_quota_percent != 0 || limits.net_bandwidth_mbps != 0;
  quota_look_ns_ = quota ? now_ns + quota_step_ns_ : kNever;
  idle_check_ns_ = kNever;
  if (limits.idle_timeout == zero) return;
  quiet_since_ns_ = looked_ns_ = now_ns;
  looked_cpu_ns_ = ReadCpuNs(files_);
  idle_check_ns_ = now_ns + IdleStep(limits.idle_timeout);
}

int64_t SessionResources::NextNs() const {
  return std::min({session_end_ns_, idle_check_ns_, quota_look_ns_, snapshot_ns_, window_ns_});
}

void SessionResources::Tick(int64_t now_ns) {
  if (now_ns >= session_end_ns_) {
    Expire(
        "session_timeout", limits_.session_timeout,
        absl::StrCat("its session timeout of ", absl::FormatDuration(limits_.session_timeout), " was over"));
  }
  if (now_ns >= idle_check_ns_) CheckIdle(now_ns);
  if (now_ns >= quota_look_ns_) {
    Look();
    quota_step_ns_ *= 2;
    quota_look_ns_ = quota_step_ns_ < kSnapshotEveryNs ? now_ns + quota_step_ns_ : kNever;
  }
  if (now_ns >= snapshot_ns_) Snapshot(now_ns);
  if (now_ns >= window_ns_) window_ns_ = TellHits() ? now_ns + kHitWindowNs : kNever;
}

void SessionResources::CheckIdle(int64_t now_ns) {
  const uint64_t cpu_ns = ReadCpuNs(files_);
  if (Worked(cpu_ns - looked_cpu_ns_, now_ns - looked_ns_)) quiet_since_ns_ = now_ns;
  quiet_since_ns_ = std::max(quiet_since_ns_, last_act_ns_);
  looked_ns_ = now_ns;
  looked_cpu_ns_ = cpu_ns;
  const int64_t over_ns = quiet_since_ns_ + absl::ToInt64Nanoseconds(limits_.idle_timeout);
  if (now_ns < over_ns) {
    idle_check_ns_ = std::min(over_ns, now_ns + IdleStep(limits_.idle_timeout));
    return;
  }
  Expire("idle_timeout", limits_.idle_timeout,
         absl::StrCat("it was idle for ", absl::FormatDuration(limits_.idle_timeout), ", its idle timeout"));
}

void SessionResources::Snapshot(int64_t now_ns) {
  const v1::Usage usage = Look();
  const bool busy = last_act_ns_ > snapshot_from_ns_ ||
                    Worked(usage.cpu_ns() - snapshot_cpu_ns_, now_ns - snapshot_from_ns_);
  snapshot_from_ns_ = now_ns;
  snapshot_cpu_ns_ = usage.cpu_ns();
  snapshot_ns_ = busy ? now_ns + kSnapshotEveryNs : kNever;
  if (!busy) return;
  TellThrottled();
  reports_.usage(usage);
}

// Many processes that end in a row are one look: what the last of them leaves unread is so young at most.
void SessionResources::OnExit(uint64_t cpu_ns, int64_t now_ns) {
  exited_cpu_ns_ += cpu_ns;
  if (now_ns - exit_look_ns_ < kExitLookNs) return;
  exit_look_ns_ = now_ns;
  Look();
}

void SessionResources::ReadHits() {
  LimitHits now = ReadLimitHits(files_);
  if (limits_.net_bandwidth_mbps != 0) now.held_back = PacketsHeldBack(files_.directory());
  seen_ = Later(seen_, now);
}

const v1::Usage& SessionResources::Look() {
  ReadHits();
  used_ = Later(used_, ReadUsage(files_));
  used_.set_cpu_ns(std::max<uint64_t>(used_.cpu_ns(), exited_cpu_ns_));
  return used_;
}

void SessionResources::OnHit(int64_t now_ns) {
  Look();
  if (HitsAwaited() && TellHits()) window_ns_ = now_ns + kHitWindowNs;
}

bool SessionResources::TellHits() {
  ReadHits();
  const LimitHits now = seen_, before = told_;
  told_ = now;
  told_.throttled = before.throttled;
  told_.held_back = before.held_back;
  const uint64_t killed = now.memory_killed - before.memory_killed;
  const uint64_t memory = std::max(now.memory - before.memory, killed);
  const uint64_t swap = now.swap - before.swap, pids = now.pids - before.pids;
  const bool of_memory = limits_.max_memory_mb != 0 && memory > 0;
  const bool of_swap = limits_.memory_swap_max_mb >= 0 && swap > 0;
  const bool of_pids = limits_.pids_max != 0 && pids > 0;
  if (of_memory) Tell("memory", static_cast<uint64_t>(limits_.max_memory_mb) << 20, memory, killed);
  if (of_swap) Tell("swap", static_cast<uint64_t>(limits_.memory_swap_max_mb) << 20, swap, 0);
  if (of_pids) Tell("pids", static_cast<uint64_t>(limits_.pids_max), pids, 0);
  return of_memory || of_swap || of_pids;
}

// No file says that these have changed, so they are told with the usage.
void SessionResources::TellThrottled() {
  const uint64_t hits = seen_.throttled - std::exchange(told_.throttled, seen_.throttled);
  if (limits_.cpu_quota_percent != 0 && hits > 0)
    Tell("cpu", static_cast<uint64_t>(limits_.cpu_quota_percent), hits, 0);
  const uint64_t dropped = seen_.held_back - std::exchange(told_.held_back, seen_.held_back);
  if (limits_.net_bandwidth_mbps != 0 && dropped > 0)
    Tell("network", static_cast<uint64_t>(limits_.net_bandwidth_mbps), dropped, 0);
}

v1::Usage SessionResources::Finish() {
  Look();
  TellHits();
  TellThrottled();
  return used_;
}

void SessionResources::Expire(const char* resource, absl::Duration limit, const std::string& reason) {
  session_end_ns_ = idle_check_ns_ = kNever;
  Tell(resource, static_cast<uint64_t>(absl::ToInt64Nanoseconds(limit)), 1, 0);
  reports_.expired(reason);
}

void SessionResources::Tell(const char* resource, uint64_t limit, uint64_t hits, uint64_t killed) {
  v1::Limit told;
  told.set_resource(resource);
  told.set_limit(limit);
  told.set_hits(hits);
  told.set_killed(killed);
  reports_.limit(told);
}

}  // namespace agentmon
