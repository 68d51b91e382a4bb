// The network backstop as the daemon runs it: nftables, what its log group tells, and what that does not
// tell.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "agentmon/v1/sessions.pb.h"
#include "common/base/clock.h"
#include "common/base/task_runner.h"
#include "daemon/enforce/network_backstop.h"
#include "daemon/enforce/network_gate.h"
#include "daemon/probe/nflog_probe.h"

namespace agentmon {

// Core thread. The runner, the clock and the gate are another's; the gate is told to use it, and goes before.
class SecondLine {
 public:
  struct Options {
    std::string instance;
    std::string cgroup_mount;
    uint32_t session_level = 0;
    bool stop_routes = false;  // see NftRuleset
  };
  SecondLine(Options options, TaskRunner& core, const Clock& clock, NetworkGate& gate);
  ~SecondLine();

  // Packets of a session that were stopped beyond those that are told.
  using Untold = std::function<void(uint64_t cgroup_id, uint64_t packets)>;
  void Start(RecordSink& sink, Untold untold);
  // See NetworkBackstop.
  void Begin() { backstop_->Begin(); }
  // Takes in what was told of the session until now.
  void RemoveSession(uint64_t cgroup_id);
  // `done` is called once, within a second or so.
  void Try(uint64_t cgroup_id, UniqueFd socket, std::function<void(absl::Status)> done);
  // `done` is called once, when all that was asked of sessions so far is done, or after a second.
  void Follow(std::function<void()> done);
  void Plan(uint64_t cgroup_id, bool apply, std::function<void(absl::StatusOr<std::string>)> done);
  // The same for a session that is not there.
  absl::StatusOr<std::string> PlanOf(const policy::Snapshot& snapshot) const;
  v1::SourceState State() const;

 private:
  // What calls `done` once: from whichever of two tasks comes first.
  std::function<void(absl::Status)> Once(std::function<void(absl::Status)> done) const;
  void CountSoon(uint64_t cgroup_id);
  void OnCounted(uint64_t cgroup_id, uint64_t stopped);

  TaskRunner& core_;
  NftRuleset::Options ruleset_;
  std::unique_ptr<NflogProbe> log_;
  absl::Status log_status_;
  std::unique_ptr<NetworkBackstop> backstop_;
  Untold untold_;
  struct Count {
    bool due = false;
    uint64_t untold = 0;
  };
  std::map<uint64_t, Count> counts_;                            // of sessions that packets were told of
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // for tasks that come late
};

}  // namespace agentmon
