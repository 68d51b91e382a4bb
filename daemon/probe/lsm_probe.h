// Acts on files, sockets and processes that the kernel stops by itself, in sessions whose policy stops any.
// docs/enforcement.md.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/task_runner.h"
#include "common/base/unique_fd.h"
#include "common/kernel/mountinfo.h"
#include "daemon/event/event.h"
#include "daemon/policy/gate.h"
#include "daemon/probe/lsm_hooks.h"
#include "daemon/probe/probe.h"
#include "daemon/probe/ring_reader.h"

namespace agentmon {

// Core thread, all of it.
class LsmProbe : public Probe {
 public:
  struct Options {
    std::string pins;            // see LsmHooks
    uint32_t session_level = 0;  // depth of sessions' cgroups
    std::string spare;           // see CompileLsm
  };
  static absl::StatusOr<std::unique_ptr<LsmProbe>> Create(TaskRunner& core, Options options);
  ~LsmProbe() override;

  absl::string_view name() const override { return "lsm"; }
  absl::Status Attach(RecordSink& sink) override;
  ProbeStats Stats() const override;

  // From now on the kernel stops what the gate's policy stops. pid: any process of the session's mounts. The
  // error says why it does not: then nothing was changed.
  absl::Status AddSession(uint64_t cgroup_id, pid_t pid, std::shared_ptr<Gate> gate);
  // Follows its gate. The error says why the session keeps the rules that it had.
  absl::Status PolicyChanged(uint64_t cgroup_id);
  void RemoveSession(uint64_t cgroup_id);
  // Whether the session's rules on unix sockets are among what the kernel stops.
  bool StopsSockets(uint64_t cgroup_id) const;
  // The same of signals to processes outside of it.
  bool StopsSignals(uint64_t cgroup_id) const;
  // After sessions of an earlier daemon were added again: what belongs to others is taken away.
  void KeepOwn();
  // Hands over what was stopped until now.
  void Drain();
  // Parts that do not run here, with the reason.
  const std::vector<std::string>& Inactive() const { return hooks_->inactive(); }

 private:
  struct Session {
    std::shared_ptr<Gate> gate;
    UniqueFd root;
    std::vector<Mount> mounts;  // as it began with
    uint32_t policy = 0;
  };
  // One that is in the maps; what it is made of, to take it away.
  struct Written {
    std::shared_ptr<const policy::Snapshot> snapshot;
    std::vector<am_lsm_key> nodes;
    std::vector<am_lsm_inode> aliases;
  };

  LsmProbe(TaskRunner& core, Options options) : core_(core), options_(std::move(options)) {}
  absl::Status Write(uint32_t id, const Session& session, Written* written);
  absl::Status WriteAliases(uint32_t id, const LsmPolicy& policy, const Session& session, Written* written);
  absl::Status Switch(uint64_t cgroup_id, Session& session);
  void Erase(uint32_t id);
  void DetachLater();
  void Consume(size_t limit);
  void OnDenial(absl::Span<const uint8_t> bytes);
  v1::Judgement JudgementOf(const am_denied& denied, const policy::Subject& subject, const Gate& gate) const;

  TaskRunner& core_;
  const Options options_;
  std::unique_ptr<LsmHooks> hooks_;
  std::unique_ptr<RingReader> reader_;
  RecordSink* sink_ = nullptr;
  std::map<uint64_t, Session> sessions_;
  std::map<uint32_t, Written> policies_;
  uint32_t next_policy_ = 1;
  uint64_t added_ = 0;          // sessions, so far
  bool knows_earlier_ = false;  // an earlier daemon's sessions are ours, or over
  uint64_t records_ = 0;
  uint64_t unowned_ = 0;  // denials of sessions that nobody knows any more
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace agentmon
