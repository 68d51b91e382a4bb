// Forks, execs and exits, from the kernel's own trace points: every one, exact.
#pragma once

#include <sys/types.h>

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/event/process_key.h"
#include "daemon/probe/bpf_load.h"
#include "daemon/probe/bpf_ring.h"
#include "daemon/probe/probe.h"

struct process_bpf;

namespace agentmon {

// Core thread. `ring` outlives it.
class ProcessProbe : public Probe {
 public:
  // Loads the programs; nothing runs before Attach.
  static absl::StatusOr<std::unique_ptr<ProcessProbe>> Create(BpfRing& ring);
  ~ProcessProbe() override;

  absl::string_view name() const override { return "process"; }
  absl::Status Attach(RecordSink& sink) override;
  ProbeStats Stats() const override;

 private:
  explicit ProcessProbe(BpfRing& ring);
  absl::Status Load();

  BpfRing& ring_;
  UniqueSkeleton<process_bpf> bpf_;
};

}  // namespace agentmon
