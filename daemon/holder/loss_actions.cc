#include "daemon/holder/loss_actions.h"

#include <utility>

namespace agentmon {

void LossActions::Set(Cgroup cgroup, LossAction action) {
  const uint64_t id = cgroup.id();
  sessions_.erase(id);
  if (action != LossAction::kNone) sessions_.emplace(id, Session{std::move(cgroup), action});
}

// A cgroup that is gone by now refuses, and has nobody to freeze or kill.
void LossActions::OnLoss(int64_t now_ns) {
  for (const auto& [id, session] : sessions_) session.cgroup.SetFrozen(true).IgnoreError();
  if (!sessions_.empty()) kill_at_ns_ = now_ns + kKillWait_ns;
}

void LossActions::Act() {
  kill_at_ns_ = 0;
  for (const auto& [id, session] : sessions_) {
    if (session.action == LossAction::kKill) session.cgroup.Kill().IgnoreError();
  }
  sessions_.clear();
}

}  // namespace agentmon
