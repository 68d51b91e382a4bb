// Whether the threads that answer agents still do, as the holder sees it.
#pragma once

#include <cstdint>
#include <map>
#include <utility>

namespace agentmon {

// Core thread. The holder answers in place of threads that do not come, and reports it; it does so now and
// then when the daemon was stopped for a moment. What stands still shows itself by a report in each of two
// intervals, with no turn of a thread between them.
class AnswerProgress {
 public:
  // `turns`: how often a thread went to take a request of this cgroup, as it is at the report.
  void OnAnsweredByHolder(uint64_t cgroup_id, uint64_t turns) { reported_[cgroup_id] = turns; }
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
