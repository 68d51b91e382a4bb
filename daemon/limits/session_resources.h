// What one session may use and has used, over time: its timeouts, the hits of its limits, its snapshots.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "agentmon/v1/event.pb.h"
#include "common/kernel/cgroup_files.h"
#include "common/policy/rule.h"
#include "daemon/limits/usage.h"

namespace agentmon {

// Core thread. Has no timer of its own: Tick is called at NextNs or later. Times are CLOCK_BOOTTIME.
class SessionResources {
 public:
  struct Reports {
    std::function<void(const v1::Limit&)> limit;
    std::function<void(const v1::Usage&)> usage;
    std::function<void(const std::string& reason)> expired;  // a timeout: the session is to end. Once.
  };

  // `directory` of its cgroup. began_ns: of the session. What its counters say by now was told before.
  SessionResources(const std::string& directory, int64_t began_ns, int64_t now_ns, Reports reports);

  void SetLimits(const policy::ResourceLimits& limits, int64_t now_ns);
  // An act of the session was seen. True when NextNs may be earlier now.
  bool OnAct(int64_t at_ns) {
    if (at_ns > last_act_ns_) last_act_ns_ = at_ns;
    if (snapshot_ns_ != kNever) return false;
    snapshot_ns_ = at_ns + kSnapshotEveryNs;
    return true;
  }
  // A process of the session ends: it may be the last one, and systemd removes a scope's directory at once.
  // `cpu_ns`: what it used in the session, all threads.
  void OnExit(uint64_t cpu_ns, int64_t now_ns);
  // One of its files that count hits was changed. What comes within a window after a hit is told at its end:
  // then HitsAwaited is true again.
  void OnHit(int64_t now_ns);
  bool HitsAwaited() const { return window_ns_ == kNever; }

  int64_t NextNs() const;  // kNever: nothing
  void Tick(int64_t now_ns);
  // Reads what there is; what only grows and is gone keeps what was read last.
  const v1::Usage& Look();
  // Tells what is left to tell.
  v1::Usage Finish();

  const CgroupFiles& files() const { return files_; }
  static constexpr int64_t kNever = INT64_MAX;

 private:
  static constexpr int64_t kSnapshotEveryNs = 60'000'000'000;

  void CheckIdle(int64_t now_ns);
  void Snapshot(int64_t now_ns);
  void Expire(const char* resource, absl::Duration limit, const std::string& reason);
  bool TellHits();  // false: none
  void TellThrottled();
  void ReadHits();
  void Tell(const char* resource, uint64_t limit, uint64_t hits, uint64_t killed);

  const CgroupFiles files_;
  const int64_t began_ns_;
  const Reports reports_;
  policy::ResourceLimits limits_;
  LimitHits told_, seen_;
  v1::Usage used_;
  uint64_t exited_cpu_ns_ = 0;  // of processes that have ended
  int64_t exit_look_ns_ = 0;    // the last look because of one
  int64_t last_act_ns_;
  int64_t session_end_ns_ = kNever;
  int64_t idle_check_ns_ = kNever;
  int64_t quiet_since_ns_, looked_ns_;  // of the idle timeout
  uint64_t looked_cpu_ns_;
  int64_t quota_look_ns_ = kNever,
          quota_step_ns_ = 0;  // of a young session with a quota of processors or network
  int64_t snapshot_ns_ = kNever, snapshot_from_ns_;
  uint64_t snapshot_cpu_ns_ = 0;
  int64_t window_ns_ = kNever;  // end of the window in which hits are counted
};

}  // namespace agentmon
