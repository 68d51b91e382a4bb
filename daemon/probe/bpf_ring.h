// What all BPF programs share: one ring, so that the order of records is kept across sources, the
// sessions whose processes are recorded, and the count of what did not fit.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bpf/event_abi.h"
#include "common/base/task_runner.h"
#include "common/base/unique_fd.h"
#include "daemon/event/record.h"
#include "daemon/probe/ring_reader.h"

struct bpf_map;

namespace agentmon {

// Depth of a cgroup below the real root of its hierarchy, also inside a cgroup namespace (kernel 6.1).
absl::StatusOr<uint32_t> CgroupLevel(int cgroup_fd);

// Core thread, all of it. Owned by the application; outlives the probes that use it.
class BpfRing {
 public:
  // `base_cgroup_fd`: the instance's directory, whose children are the sessions' directories.
  // Fails with what is missing: rights, BPF, the kernel's type information.
  static absl::StatusOr<std::unique_ptr<BpfRing>> Create(int base_cgroup_fd, TaskRunner& runner);
  ~BpfRing();

  // Starts to hand records to `sink`; further calls with the same sink do nothing.
  absl::Status Start(RecordSink& sink);
  // Hands over what is in the ring now. Called by itself when records come; to be called before
  // records of other sources are handled, so that forks are known first.
  void Drain();

  absl::Status AddSession(uint64_t cgroup_id);
  absl::Status RemoveSession(uint64_t cgroup_id);
  bool HasSession(uint64_t cgroup_id) const;

  uint32_t session_level() const { return session_level_; }
  // Records handed over and lost in the ring, by am_type.
  uint64_t records(am_type type) const { return records_[type]; }
  uint64_t Lost(am_type type) const;

  // Makes an object that is opened but not loaded use our maps. Skeletons differ in type only.
  template <typename Skeleton>
  absl::Status Share(Skeleton* skeleton) const {
    skeleton->rodata->session_level = session_level_;
    if (absl::Status s = Reuse(skeleton->maps.events, events_.get()); !s.ok()) return s;
    if (absl::Status s = Reuse(skeleton->maps.ring_state, state_.get()); !s.ok()) return s;
    if (absl::Status s = Reuse(skeleton->maps.lost, lost_.get()); !s.ok()) return s;
    return Reuse(skeleton->maps.sessions, sessions_.get());
  }

 private:
  BpfRing(TaskRunner& runner, uint32_t session_level) : runner_(runner), session_level_(session_level) {}
  absl::Status MakeMaps();
  static absl::Status Reuse(bpf_map* map, int fd);
  void OnSample(absl::Span<const uint8_t> bytes);
  size_t Consume(size_t limit);
  void OnWake();
  void Poll();
  void PollLater();
  void PollAfter(absl::Duration delay);
  void Arm();

  TaskRunner& runner_;
  const uint32_t session_level_;
  UniqueFd events_, state_, lost_, sessions_;
  UniqueFd wake_;                       // epoll, edge-triggered on events_
  volatile uint32_t* armed_ = nullptr;  // mapped from ring_state
  std::unique_ptr<RingReader> reader_;
  RecordSink* sink_ = nullptr;
  int quiet_polls_ = 0;   // looks in a row that found nothing
  bool polling_ = false;  // the next look is near
  uint64_t poll_ = 0;     // number of the look that is due; earlier ones that still wait do nothing
  bool draining_ = false;
  std::array<uint64_t, AM_TYPE_COUNT> records_{};
  // Tasks that are still queued when the ring goes find out by this.
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace agentmon
