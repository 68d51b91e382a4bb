// Probes that note what was asked of them.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <utility>

#include "daemon/session/observation.h"

namespace agentmon {

class FakeObservation : public Observation {
 public:
  absl::Status AddSession(uint64_t cgroup_id, int) override {
    if (!add_session.ok()) return add_session;
    sessions.insert(cgroup_id);
    return absl::OkStatus();
  }
  absl::Status JudgeConnects(uint64_t cgroup_id, std::shared_ptr<const policy::Snapshot> snapshot) override {
    if (judge_connects.ok()) judged[cgroup_id] = std::move(snapshot);
    return judge_connects;
  }
  absl::StatusOr<ProxyDoor> OpenProxy(ProxiedSession, const std::optional<ProxyDoor>&) override {
    return absl::UnavailableError("a fake");
  }
  absl::Status CanJudgeUnix() const override { return absl::UnavailableError("a fake"); }
  absl::Status JudgeUnix(uint64_t) override { return CanJudgeUnix(); }
  bool BacksUpConnects(uint64_t) const override { return backstop.has_value(); }
  void TryBackstop(uint64_t, UniqueFd, std::function<void(absl::Status)> done) override { done(*backstop); }
  void WhenBackstopFollows(std::function<void()> done) override { done(); }
  void TakeIn() override {}
  void RemoveSession(uint64_t cgroup_id) override { sessions.erase(cgroup_id); }
  bool Settled(uint64_t) override { return settled; }
  absl::Status AddMounts(uint64_t, pid_t, std::shared_ptr<Gate>) override { return add_mounts; }
  std::vector<UnmarkedMount> Unmarked(uint64_t) const override { return {}; }
  absl::Status AddRules(uint64_t, pid_t, std::shared_ptr<Gate>) override { return absl::OkStatus(); }
  bool StopsSockets(uint64_t) const override { return false; }
  bool StopsSignals(uint64_t) const override { return false; }
  void TakeInStopped() override {}
  absl::Status PolicyChanged(uint64_t) override { return absl::OkStatus(); }
  absl::Status SetLossAction(const Cgroup& cgroup, LossAction action) override {
    loss_actions[cgroup.id()] = action;
    return absl::OkStatus();
  }
  absl::Status AddListener(uint64_t cgroup_id, UniqueFd listener, std::shared_ptr<Gate>) override {
    listeners[cgroup_id] = std::move(listener);
    return absl::OkStatus();
  }
  absl::StatusOr<int> CollectTree(pid_t root, const std::function<absl::Status(pid_t)>& move_one) override {
    const absl::Status moved = move_one(root);
    if (!moved.ok()) return moved;
    return 1;
  }
  absl::StatusOr<uint64_t> AddWatch(pid_t) override { return uint64_t{1} << 63; }
  void SessionMembersChanged() override {}
  bool WatchEnded(uint64_t) override { return watch_ended; }
  std::vector<v1::SourceState> Sources() const override {
    std::vector<v1::SourceState> states;
    for (const v1::Source source : {v1::PROCESS, v1::NETWORK, v1::FANOTIFY, v1::NOTIFY}) {
      states.emplace_back().set_source(source);
      states.back().set_active(true);
    }
    return states;
  }

  absl::Status add_session, add_mounts, judge_connects;
  std::optional<absl::Status> backstop;  // none: there is none
  std::map<uint64_t, std::shared_ptr<const policy::Snapshot>> judged;
  bool watch_ended = false;
  bool settled = true;
  std::set<uint64_t> sessions;
  std::map<uint64_t, UniqueFd> listeners;
  std::map<uint64_t, LossAction> loss_actions;
};

}  // namespace agentmon
