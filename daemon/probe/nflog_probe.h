// Packets of sessions that nftables stopped, as its log group (NFLOG) tells them: each a record of its own.
// The kernel tells some twenty a second of a session; what else was stopped is counted (NetworkBackstop).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "agentmon/v1/event.pb.h"
#include "common/base/clock.h"
#include "common/base/task_runner.h"
#include "common/base/unique_fd.h"
#include "common/policy/subject.h"
#include "daemon/probe/probe.h"

namespace agentmon {

// What a log entry says. The destination's port is 0 where there is none.
struct StoppedPacket {
  uint64_t cgroup_id = 0;  // of the session
  policy::Address destination;
  uint8_t protocol = 0;  // IPPROTO_*
  uint16_t port = 0;
  uint32_t uid = 0;
};
// Of a netlink message's payload, from its nfgenmsg on. Nullopt: not one of ours, or damaged. Pure.
std::optional<StoppedPacket> ParseLogEntry(absl::Span<const uint8_t> message);

// Core thread. `core` and `clock` outlive it.
class NflogProbe : public Probe {
 public:
  // What denied it, for its event.
  using Describe =
      std::function<v1::Judgement(uint64_t cgroup_id, const policy::Subject& subject, int error)>;
  // Takes a log group that nobody else listens to, near `first_group`.
  static absl::StatusOr<std::unique_ptr<NflogProbe>> Create(TaskRunner& core, const Clock& clock,
                                                            uint16_t first_group, Describe describe);
  ~NflogProbe() override;

  absl::string_view name() const override { return "nflog"; }
  uint16_t group() const { return group_; }
  absl::Status Attach(RecordSink& sink) override;
  // Takes in what the kernel has told until now.
  void Drain();
  ProbeStats Stats() const override { return stats_; }
  // Packets of this session that were told.
  uint64_t Told(uint64_t cgroup_id) const;
  // Called for each packet that is told, with its session.
  void OnPacket(std::function<void(uint64_t cgroup_id)> on_packet) { on_packet_ = std::move(on_packet); }
  // They were stopped and not told.
  void CountLost(uint64_t packets) { stats_.lost += packets; }
  void Forget(uint64_t cgroup_id) { told_.erase(cgroup_id); }

 private:
  NflogProbe(TaskRunner& core, const Clock& clock, UniqueFd socket, uint16_t group, Describe describe);
  void Take(absl::Span<const uint8_t> messages);
  void Tell(const StoppedPacket& packet);

  TaskRunner& core_;
  const Clock& clock_;
  const UniqueFd socket_;
  const uint16_t group_;
  const Describe describe_;
  std::function<void(uint64_t cgroup_id)> on_packet_;
  RecordSink* sink_ = nullptr;
  bool watched_ = false;
  ProbeStats stats_;
  std::map<uint64_t, uint64_t> told_;  // by session
};

}  // namespace agentmon
