// What sessions' sockets do: connect, bind, listen, datagrams, named unix sockets. Every attempt on a
// socket that was made below the base cgroup; sockets that were made before their process came into
// a session, or passed in from outside, are not seen.
#pragma once

#include <map>
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
  // The same programs on a cgroup that does not lie below the base. After Attach.
  absl::Status AddCgroup(uint64_t cgroup_id, int cgroup_fd);
  void RemoveCgroup(uint64_t cgroup_id) { own_links_.erase(cgroup_id); }
  ProbeStats Stats() const override;
  // One line for each part that this kernel does not run: "unix_connect: not in this kernel (needs 6.7)".
  const std::vector<std::string>& Inactive() const { return inactive_; }

 private:
  NetworkProbe(BpfRing& ring, int base_cgroup_fd);
  using Links = std::vector<UniqueLink>;
  static absl::Status AttachOne(bpf_program* program, int cgroup_fd, absl::string_view part, Links& links);
  absl::Status AttachInet(int cgroup_fd, Links& links);
  absl::Status LoadUnix();
  // What this kernel does not run, one line each.
  std::vector<std::string> AttachUnix(int cgroup_fd, Links& links);

  BpfRing& ring_;
  const int base_cgroup_fd_;
  UniqueSkeleton<network_bpf> inet_;
  UniqueSkeleton<unix_bpf> unix_;
  absl::Status unix_status_;
  Links links_;
  std::map<uint64_t, Links> own_links_;  // by cgroup
  std::vector<std::string> inactive_;
};

}  // namespace agentmon
