// Whether the threads that answer agents still do.
#pragma once

#include <cstdint>
#include <map>
#include <utility>

namespace agentmon {

// Core thread. A request that waits, or that the holder answered in place of a thread that did not come,
// means little by itself: the daemon may have been stopped for a moment. What stands still shows itself by
// one in each of two intervals, with no turn of a thread between them.
class AnswerProgress {
 public:
  // `turns`: how often a thread has gone to take a request of this cgroup.
  void OnNotServed(uint64_t cgroup_id, uint64_t turns) { reported_[cgroup_id] = turns; }
  // Once an interval.
  bool MakesProgress() {
    bool moves = true;
    for (const auto& report : reported_) {
      const auto before = before_.find(report.first);
      if (before != before_.end() && before->second == report.second) moves = false;
    }
    before_ = std::move(reported_);
    reported_.clear();
    return moves;
  }

 private:
  std::map<uint64_t, uint64_t> reported_;  // cgroup -> turns, in this interval
  std::map<uint64_t, uint64_t> before_;    // in the one before
};

}  // namespace agentmon
