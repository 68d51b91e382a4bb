#include "daemon/probe/notify_probe.h"

#include "common/base/status.h"
#include "daemon/probe/call_server.h"

namespace agentmon {
absl::Status NotifyProbe::Attach(RecordSink& sink) {
  queue_ = RecordQueue::Create(core_, sink, options_.queue_bytes);
  NotifyPool::Options pool;
  pool.lanes = options_.lanes;
  pool.shared = options_.shared;
  pool.on_gone = options_.on_gone;
  const auto waiters = std::make_shared<CallWaiters>(options_.shared);
  NetworkMeans network;
  if (options_.judges_network) network = {waiters, queue_};
  ServedMeans served;
  if (options_.served != nullptr) served = {options_.served, std::make_shared<CallMaker>(), waiters};
  pool.make_server = [deps =
                          CallServerDeps{calls_, queue_, options_.dedupe, options_.permits, options_.verifier,
                                         options_.unix_means, network, served, options_.tells_execs}] {
    return std::make_unique<CallServer>(deps);
  };
  ASSIGN_OR_RETURN(pool_, NotifyPool::Start(std::move(pool)));
  return absl::OkStatus();
}

ProbeStats NotifyProbe::Stats() const { return queue_ != nullptr ? queue_->Stats() : ProbeStats{}; }

absl::Status NotifyProbe::AddListener(uint64_t cgroup_id, UniqueFd listener, std::shared_ptr<Gate> gate) {
  return pool_->Add(cgroup_id, std::move(listener), std::move(gate));
}

void NotifyProbe::RemoveListener(uint64_t cgroup_id) { pool_->Remove(cgroup_id); }

}  // namespace agentmon
