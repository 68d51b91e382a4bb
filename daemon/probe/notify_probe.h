// Source "notify": file-changing system calls of sessions, from the seccomp filter that the shim installs.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "common/base/task_runner.h"
#include "common/base/unique_fd.h"
#include "daemon/probe/call_table.h"
#include "daemon/probe/exec_permits.h"
#include "daemon/probe/exec_verifier.h"
#include "daemon/probe/notify_pool.h"
#include "daemon/probe/open_dedupe.h"
#include "daemon/probe/probe.h"
#include "daemon/probe/record_queue.h"
#include "daemon/probe/served_places.h"
#include "daemon/probe/unix_broker.h"

namespace agentmon {

// Without a gate every request is answered CONTINUE, whatever happens here: an agent never fails or waits
// because of what we could not read, resolve or queue; names are as asked. With one: CallServer. Kinds: an
// open that would make a file is CREATE, any other open for writing (also one that empties a file) is
// OPEN_WRITE.
class NotifyProbe : public Probe {
 public:
  struct Options {
    int lanes = 2;  // serving threads; one more guards them
    size_t queue_bytes = size_t{8} << 20;
    NotifyShared* shared = nullptr;          // with the holder; null: none
    std::shared_ptr<OpenDedupe> dedupe;      // is told of opens for writing; may be null
    std::shared_ptr<ExecPermits> permits;    // is told of execs that were judged; may be null
    std::shared_ptr<ExecVerifier> verifier;  // the same; may be null
    UnixMeans unix_means;
    std::shared_ptr<ServedPlaces> served;                       // shared with the fanotify probe; may be null
    bool tells_execs = false;                                   // nobody else does
    bool judges_network = false;                                // the same of connects and sends
    std::function<void(uint64_t cgroup_id)> on_gone = nullptr;  // see NotifyPool; any thread
  };
  // Core thread. `core` must outlive the probe.
  NotifyProbe(TaskRunner& core, Options options) : core_(core), options_(std::move(options)) {}

  absl::string_view name() const override { return "notify"; }
  absl::Status Attach(RecordSink& sink) override;
  ProbeStats Stats() const override;

  // Serves a listener from now on. It is dropped by itself once no process is left behind its filter.
  absl::Status AddListener(uint64_t cgroup_id, UniqueFd listener, std::shared_ptr<Gate> gate = nullptr);
  // Only for sessions that have ended: without a listener elsewhere, mediated calls of what is left fail with
  // ENOSYS.
  void RemoveListener(uint64_t cgroup_id);
  // Calls back with each listener that is served.
  void EachListener(const std::function<void(uint64_t cgroup_id, int fd, bool closed)>& callback) const {
    pool_->Each(callback);
  }
  // Requests that were answered unseen.
  void CountLost(uint64_t requests) { queue_->CountLost(requests); }
  // Core thread: hands over what waits.
  void Drain() { queue_->Drain(); }

 private:
  TaskRunner& core_;
  const Options options_;
  CallTable calls_;
  std::shared_ptr<RecordQueue> queue_;
  std::unique_ptr<NotifyPool> pool_;
};

}  // namespace agentmon
