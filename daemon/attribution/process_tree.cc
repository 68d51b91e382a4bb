#include "daemon/attribution/process_tree.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace agentmon {
namespace {

constexpr size_t kMaxThreads = 16'384;

bool RanAt(const ProcessTree::Node& node, int64_t at_boot_ns) {
  return node.key.start_ns <= static_cast<uint64_t>(at_boot_ns);
}

}  // namespace

void ProcessTree::Seed(const SeedProcess& seed) {
  const auto found = live_.find(seed.key.pid);
  if (found != live_.end() && found->second.key == seed.key) {
    Node& node = found->second;
    if (node.exe.empty()) node.exe = seed.exe;
    if (node.parent.pid == 0) node.parent = seed.parent;
    node.cgroup_id = seed.cgroup_id;
    return;
  }
  // A successor with the same pid is known already: the seed is older.
  if (found != live_.end() && found->second.key.start_ns > seed.key.start_ns) return;
  Insert({seed.key, seed.parent, seed.exe, seed.uid, seed.cgroup_id, 0, "", 0}, 0);
}

void ProcessTree::Learn(const Decoded& decoded) {
  if (decoded.event.judgement().enforced()) return;  // it was stopped: nothing has changed
  switch (decoded.event.kind()) {
    case v1::FORK:
      return OnFork(decoded);
    case v1::EXEC:
      return OnExec(decoded);
    case v1::EXIT:
      return OnExit(decoded);
    default:
      return;
  }
}

// The node of the event's process, made when it is not there.
ProcessTree::Node* ProcessTree::Know(const Event& event, uint64_t cgroup_id) {
  const ProcessKey key = ProcessKey::From(event.process());
  const auto found = live_.find(key.pid);
  if (found != live_.end()) {
    Node& node = found->second;
    if (node.key.start_ns == 0) node.key = key;  // from /proc, which does not tell births exactly
    if (node.key == key) return &node;
  }
  return Insert({key, {}, "", event.uid(), cgroup_id, 0, "", 0}, event.boot_ns());
}

ProcessTree::Node* ProcessTree::Insert(Node node, int64_t now_ns) {
  const pid_t pid = node.key.pid;
  Retire(pid, now_ns);  // its exit was lost
  threads_.erase(pid);  // the number was a thread's before
  if (live_.size() >= options_.max_live) return nullptr;
  return &(live_[pid] = std::move(node));
}

void ProcessTree::OnFork(const Decoded& decoded) {
  const Event& event = decoded.event;
  Node child;
  child.key = ProcessKey::From(event.fork().child());
  child.parent = ProcessKey::From(event.process());
  child.uid = event.uid();
  child.cgroup_id = decoded.cgroup_id;
  if (const Node* parent = Know(event, decoded.cgroup_id)) child.exe = parent->exe;
  Insert(std::move(child), event.boot_ns());
}

void ProcessTree::OnExec(const Decoded& decoded) {
  const Event& event = decoded.event;
  Node* node = Know(event, decoded.cgroup_id);
  if (node == nullptr) return;
  // Records of other sources come later than the exec's; what was done before it was another program's doing.
  node->exe_before = std::move(node->exe);
  node->exec_ns = event.boot_ns();
  node->exe = event.exe();
  node->uid = event.uid();
  node->cgroup_id = decoded.cgroup_id;
  if (node->parent.pid == 0) node->parent = ProcessKey::From(event.parent());
}

void ProcessTree::OnExit(const Decoded& decoded) {
  const pid_t pid = decoded.event.process().pid();
  if (Node* node = Know(decoded.event, decoded.cgroup_id)) node->exited_ns = decoded.event.boot_ns();
  Retire(pid, decoded.event.boot_ns());
  Prune(decoded.event.boot_ns());
}

void ProcessTree::Retire(pid_t pid, int64_t now_ns) {
  const auto found = live_.find(pid);
  if (found == live_.end()) return;
  Node node = std::move(found->second);
  live_.erase(found);
  if (node.exited_ns == 0) node.exited_ns = now_ns;
  exited_order_.emplace_back(node.key, now_ns);
  exited_[pid].push_back(std::move(node));
}

void ProcessTree::Prune(int64_t now_ns) {
  const int64_t oldest = now_ns - absl::ToInt64Nanoseconds(options_.keep_exited);
  while (!exited_order_.empty() &&
         (exited_order_.size() > options_.max_exited || exited_order_.front().second < oldest)) {
    const pid_t pid = exited_order_.front().first.pid;
    exited_order_.pop_front();
    std::vector<Node>& nodes = exited_[pid];
    nodes.erase(nodes.begin());
    if (nodes.empty()) exited_.erase(pid);
  }
}

const ProcessTree::Node* ProcessTree::Find(pid_t pid, uint64_t start_ns, int64_t at_boot_ns) const {
  const auto live = live_.find(pid);
  if (live != live_.end()) {
    const Node& node = live->second;
    if (start_ns != 0 ? node.key.start_ns == start_ns : RanAt(node, at_boot_ns)) return &node;
  }
  const auto exited = exited_.find(pid);
  if (exited == exited_.end()) return nullptr;
  for (auto node = exited->second.rbegin(); node != exited->second.rend(); ++node) {
    if (start_ns != 0 ? node->key.start_ns == start_ns : RanAt(*node, at_boot_ns)) return &*node;
  }
  return nullptr;
}

bool ProcessTree::HasThread(pid_t process, pid_t tid) const {
  return access(absl::StrCat(proc_.root(), "/", process, "/task/", tid).c_str(), F_OK) == 0;
}

// A thread's number may be used again by another process while nothing tells us: a cached answer is
// checked, which costs a tenth of asking anew. A thread that is gone was most likely the cached one.
pid_t ProcessTree::ProcessOf(uint32_t thread, int64_t at_boot_ns) {
  const pid_t tid = static_cast<pid_t>(thread);
  if (tid <= 0) return 0;
  if (const auto live = live_.find(tid); live != live_.end() && RanAt(live->second, at_boot_ns)) return tid;
  const auto cached = threads_.find(tid);
  if (cached != threads_.end() && HasThread(cached->second, tid)) return cached->second;
  if (const absl::StatusOr<pid_t> process = proc_.ThreadGroup(tid); process.ok()) {
    if (threads_.size() >= kMaxThreads) threads_.clear();
    threads_[tid] = *process;
    return *process;
  }
  return cached != threads_.end() ? cached->second : tid;
}

// From /proc: no exact birth, so the node is completed by the first record that has it.
const ProcessTree::Node* ProcessTree::LookUp(pid_t pid) {
  const absl::StatusOr<uid_t> uid = proc_.Uid(pid);
  if (!uid.ok()) return nullptr;
  Node node;
  node.key.pid = pid;
  node.uid = *uid;
  if (auto exe = proc_.Executable(pid); exe.ok()) node.exe = *std::move(exe);
  if (const auto stat = proc_.Stat(pid); stat.ok()) {
    node.parent.pid = stat->parent;
    if (const Node* parent = Find(stat->parent, 0, INT64_MAX)) node.parent = parent->key;
  }
  return Insert(std::move(node), 0);
}

void ProcessTree::Stamp(Event* event, uint32_t tid) {
  v1::ProcessKey* process = event->mutable_process();
  if (process->pid() == 0) process->set_pid(ProcessOf(tid, event->boot_ns()));
  if (process->pid() == 0) return;  // the daemon's own
  const bool birth_told = process->start_ns() != 0;
  const Node* node = Find(process->pid(), process->start_ns(), event->boot_ns());
  if (node == nullptr && !birth_told) node = LookUp(process->pid());
  if (node == nullptr) return;
  if (!birth_told) {
    process->set_start_ns(node->key.start_ns);
    if (event->uid() == 0) event->set_uid(node->uid);
  }
  if (event->exe().empty()) {
    event->set_exe(event->boot_ns() < node->exec_ns && !node->exe_before.empty() ? node->exe_before
                                                                                 : node->exe);
  }
  if (node->parent.pid != 0) node->parent.To(event->mutable_parent());
  NotAfterItsEnd(*node, event);
}

void ProcessTree::NotAfterItsEnd(const Node& node, Event* event) {
  if (event->source() != v1::FANOTIFY || node.exited_ns == 0 || event->boot_ns() < node.exited_ns) return;
  const int64_t late_ns = event->boot_ns() - node.exited_ns + 1;  // just before the exit's row
  event->set_boot_ns(event->boot_ns() - late_ns);
  event->set_wall_ns(event->wall_ns() - late_ns);
}

void ProcessTree::ForgetSession(uint64_t cgroup_id) {
  absl::erase_if(live_, [=](const auto& entry) { return entry.second.cgroup_id == cgroup_id; });
}

}  // namespace agentmon
