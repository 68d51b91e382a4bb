#include "daemon/probe/tree_closure.h"

#include <utility>

namespace agentmon {

void TreeClosure::AddBirth(ProcessKey child, ProcessKey parent) {
  birth_.try_emplace(child, parent);
  AddEdge(child, parent);
}

void TreeClosure::AddEdge(ProcessKey child, ProcessKey parent) {
  children_[parent].insert(child);
  if (members_.contains(parent)) Join(child);
}

void TreeClosure::AddSnapshot(const std::vector<am_task>& tasks) {
  ++snapshots_;
  alive_.clear();
  for (const am_task& task : tasks) {
    const ProcessKey key{static_cast<pid_t>(task.key.pid), task.key.start_ns};
    if (task.alive != 0) alive_.insert(key);
    AddEdge(key, {static_cast<pid_t>(task.parent.pid), task.parent.start_ns});
  }
}

// Breadth first, so that waiting_ has parents before children.
void TreeClosure::Join(ProcessKey first) {
  std::vector<ProcessKey> joining{first};
  for (size_t i = 0; i < joining.size(); ++i) {
    const ProcessKey key = joining[i];
    if (!members_.insert(key).second) continue;
    waiting_.push_back({key, snapshots_});
    const auto children = children_.find(key);
    if (children == children_.end()) continue;
    joining.insert(joining.end(), children->second.begin(), children->second.end());
  }
}

bool TreeClosure::BornInside(ProcessKey key) const {
  const auto parent = birth_.find(key);
  if (parent == birth_.end()) return false;
  const auto moved = moved_ns_.find(parent->second);
  return moved != moved_ns_.end() && key.start_ns > moved->second;
}

std::vector<ProcessKey> TreeClosure::ToMove() {
  std::vector<ProcessKey> to_move;
  std::vector<Waiting> still;
  for (const Waiting& waiting : waiting_) {
    if (BornInside(waiting.key)) {
      SetMoved(waiting.key, waiting.key.start_ns);
    } else if (alive_.contains(waiting.key)) {
      to_move.push_back(waiting.key);
    } else if (waiting.since == snapshots_) {
      still.push_back(waiting);  // joined after the snapshot; one that was there before it is dead
    }
  }
  waiting_ = std::move(still);
  unsettled_ = !waiting_.empty();
  return to_move;
}

std::vector<ProcessKey> TreeClosure::Alive() const {
  std::vector<ProcessKey> alive;
  for (const ProcessKey& key : members_) {
    if (alive_.contains(key)) alive.push_back(key);
  }
  return alive;
}

}  // namespace agentmon
