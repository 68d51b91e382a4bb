// What sessions' sockets do: connect, bind, listen, datagrams, named unix sockets. Every attempt on a
// socket that was made below the base cgroup; sockets that were made before their process came into
// a session, or passed in from outside, are not seen.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/probe/bpf_load.h"
#include "daemon/probe/bpf_ring.h"
#include "daemon/probe/probe.h"

struct network_bpf;
struct unix_bpf;

namespace agentmon {

// Core thread. `ring` outlives it; the base cgroup's descriptor is only used during Attach.
class NetworkProbe : public Probe {
 public:
  static absl::StatusOr<std::unique_ptr<NetworkProbe>> Create(BpfRing& ring, int base_cgroup_fd);
  ~NetworkProbe() override;

  absl::string_view name() const override { return "network"; }
  // Fails when nothing could be attached; what is missing alone is in Inactive().
  absl::Status Attach(RecordSink& sink) override;
  ProbeStats Stats() const override;
  // One line for each part that this kernel does not run: "unix_connect: not in this kernel (needs 6.7)".
  const std::vector<std::string>& Inactive() const { return inactive_; }

 private:
  NetworkProbe(BpfRing& ring, int base_cgroup_fd);
  absl::Status AttachOne(bpf_program* program, absl::string_view part);
  absl::Status AttachInet();
  absl::Status LoadUnix();
  void AttachUnix();

  BpfRing& ring_;
  const int base_cgroup_fd_;
  UniqueSkeleton<network_bpf> inet_;
  UniqueSkeleton<unix_bpf> unix_;
  absl::Status unix_status_;
  std::vector<UniqueLink> links_;
  std::vector<std::string> inactive_;
};

}  // namespace agentmon
