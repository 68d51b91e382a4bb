// What the session manager needs of the probes.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "agentmon/v1/sessions.pb.h"
#include "common/base/loss_action.h"
#include "common/base/unique_fd.h"
#include "common/kernel/cgroup.h"
#include "daemon/policy/gate.h"
#include "daemon/policy/unmarked_mount.h"
#include "daemon/proxy/proxy_door.h"
#include "daemon/proxy/proxy_session.h"

namespace agentmon {

// Core thread, unless a method says otherwise. Never blocks for longer than some milliseconds.
class Observation {
 public:
  virtual ~Observation() = default;
  // From now on the processes of this cgroup (and below) are recorded. `own_fd`: of a cgroup that does not
  // lie below the instance's base, so that what is attached to the base does not see it; else -1.
  virtual absl::Status AddSession(uint64_t cgroup_id, int own_fd) = 0;
  // From now on the kernel judges the connects and datagrams of this cgroup by this policy, or by this one
  // in place of another. On an error a cgroup that was not judged is not, and one that was is denied all.
  virtual absl::Status JudgeConnects(uint64_t cgroup_id,
                                     std::shared_ptr<const policy::Snapshot> snapshot) = 0;
  // A proxy for the session's programs that judges the names and addresses which they ask it for; only where
  // the kernel judges no connects. `earlier`: as a daemon before this one had opened it.
  virtual absl::StatusOr<ProxyDoor> OpenProxy(ProxiedSession session,
                                              const std::optional<ProxyDoor>& earlier) = 0;
  // Whether calls on unix sockets can be judged on this host; why not.
  virtual absl::Status CanJudgeUnix() const = 0;
  // From now on the kernel refuses them in this cgroup unless its gate was asked. After JudgeConnects.
  virtual absl::Status JudgeUnix(uint64_t cgroup_id) = 0;
  // Whether something stands behind that for packets that it does not see; its control is `network_backstop`.
  virtual bool BacksUpConnects(uint64_t cgroup_id) const = 0;
  // Whether it holds: tried with an IPv4 datagram socket that was made in the session. `done` is called on
  // the core thread, once, within some seconds.
  virtual void TryBackstop(uint64_t cgroup_id, UniqueFd socket, std::function<void(absl::Status)> done) = 0;
  // Calls `done` on the core thread, once, when the backstop has the policies of this moment, or a second
  // later.
  virtual void WhenBackstopFollows(std::function<void()> done) = 0;
  // Hands on what was recorded so far.
  virtual void TakeIn() = 0;
  // Takes in what was recorded so far, then lifts everything that was added for this cgroup.
  virtual void RemoveSession(uint64_t cgroup_id) = 0;
  // Nothing of this cgroup still waits in a kernel queue to be read.
  virtual bool Settled(uint64_t cgroup_id) = 0;
  // Marks the mounts of the process's mount namespace; the error says why file reads are not seen.
  // With a gate, opens and execs are asked first and answered by it.
  virtual absl::Status AddMounts(uint64_t cgroup_id, pid_t pid, std::shared_ptr<Gate> gate) = 0;
  // Mounts behind servers, of those, about which nothing is asked after all.
  virtual std::vector<UnmarkedMount> Unmarked(uint64_t cgroup_id) const = 0;
  // From now on the kernel stops by itself what the gate stops, as far as it can; pid: a process of the
  // session's mounts. The error says why it does not.
  virtual absl::Status AddRules(uint64_t cgroup_id, pid_t pid, std::shared_ptr<Gate> gate) = 0;
  // Whether that includes the rules on unix sockets: then nobody else needs to look.
  virtual bool StopsSockets(uint64_t cgroup_id) const = 0;
  // The same of signals to processes outside of the session.
  virtual bool StopsSignals(uint64_t cgroup_id) const = 0;
  // Takes in what the kernel has stopped by itself until now.
  virtual void TakeInStopped() = 0;
  // With a gate, its calls are judged before they happen.
  virtual absl::Status AddListener(uint64_t cgroup_id, UniqueFd listener, std::shared_ptr<Gate> gate) = 0;
  // What the gate of this cgroup says has changed. The
  // error says why the kernel goes on with the rules that it had.
  virtual absl::Status PolicyChanged(uint64_t cgroup_id) = 0;
  // What becomes of this cgroup when no daemon comes; the error says why that cannot be had.
  virtual absl::Status SetLossAction(const Cgroup& cgroup, LossAction action) = 0;
  // Calls move_one for root and each of its descendants, also for those that are forked or orphaned
  // meanwhile; NotFound from it leaves a process out. Returns how many are alive at the end. Blocks, 2 s at
  // most; any thread but the core.
  virtual absl::StatusOr<int> CollectTree(pid_t root, const std::function<absl::Status(pid_t)>& move_one) = 0;
  // Records root and its descendants where they are; returns the number that stands for their cgroup.
  // Blocks; any thread but the core. RemoveSession ends it.
  virtual absl::StatusOr<uint64_t> AddWatch(pid_t root) = 0;
  // Processes came into a session that were running before: take in who they are.
  virtual void SessionMembersChanged() = 0;
  // What was watched has ended.
  virtual bool WatchEnded(uint64_t watch_id) = 0;
  // The sources as they are on this host.
  virtual std::vector<v1::SourceState> Sources() const = 0;
};

}  // namespace agentmon
