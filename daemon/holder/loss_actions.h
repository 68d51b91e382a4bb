// What becomes of sessions when no daemon is there to answer for them (`on_daemon_loss` of their policies).
#pragma once

#include <cstdint>
#include <map>

#include "common/base/loss_action.h"
#include "common/kernel/cgroup.h"

namespace agentmon {

// One thread. Times are CLOCK_BOOTTIME, nanoseconds.
class LossActions {
 public:
  static constexpr int64_t kKillWait_ns = int64_t{30} * 1'000'000'000;  // frozen meanwhile

  // kNone takes it out.
  void Set(Cgroup cgroup, LossAction action);
  void Remove(uint64_t cgroup_id) { sessions_.erase(cgroup_id); }
  bool empty() const { return sessions_.empty(); }

  // No daemon has come: freezes all of them. The next daemon lets go again those that it takes over.
  void OnLoss(int64_t now_ns);
  void OnDaemon() { kill_at_ns_ = 0; }
  // When Act has something to do; 0 = never.
  int64_t next_ns() const { return kill_at_ns_; }
  // Nobody came for kKillWait_ns: ends those that are to be killed, and forgets all.
  void Act();

 private:
  struct Session {
    Cgroup cgroup;
    LossAction action;
  };
  std::map<uint64_t, Session> sessions_;  // by cgroup
  int64_t kill_at_ns_ = 0;
};

}  // namespace agentmon
