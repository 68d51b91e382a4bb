// What sessions' sockets do: connect, bind, listen, datagrams, named unix sockets. Every attempt on a
// socket that was made below the base cgroup; sockets that were made before their process came into
// a session, or passed in from outside, are not seen. The same programs deny what policies deny.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "daemon/enforce/network_gate.h"
#include "daemon/probe/bpf_load.h"
#include "daemon/probe/bpf_pins.h"
#include "daemon/probe/bpf_ring.h"
#include "daemon/probe/probe.h"
#include "daemon/probe/unix_permits.h"

struct network_bpf;
struct unix_bpf;

namespace agentmon {

// Core thread. `ring` and `clock` outlive it; the base cgroup's descriptor is only used during Attach.
class NetworkProbe : public Probe {
 public:
  // instance: whose links stay when the daemon dies.
  static absl::StatusOr<std::unique_ptr<NetworkProbe>> Create(BpfRing& ring, int base_cgroup_fd,
                                                              const std::string& instance,
                                                              const Clock& clock);
  ~NetworkProbe() override;

  absl::string_view name() const override { return "network"; }
  // Fails when nothing could be attached; what is missing alone is in Inactive().
  absl::Status Attach(RecordSink& sink) override;
  // The same programs on a cgroup that does not lie below the base. After Attach.
  absl::Status AddCgroup(uint64_t cgroup_id, int cgroup_fd);
  // And all that was done for the session of this cgroup.
  void RemoveCgroup(uint64_t cgroup_id);
  // From now on this policy judges the session's connects and datagrams, also when the daemon dies. After
  // AddCgroup, where that is called. On an error see NetworkGate::SetPolicy.
  absl::Status Enforce(uint64_t cgroup_id, std::shared_ptr<const policy::Snapshot> snapshot);
  // From now on the session's calls that name unix sockets need permits, also when the daemon dies. After
  // Enforce, which keeps the programs.
  absl::Status JudgeUnix(uint64_t cgroup_id);
  // Null where the kernel cannot; `unix_judgeable` says why. After Attach that one is exact.
  std::shared_ptr<UnixPermits> unix_permits() { return permits_; }
  const absl::Status& unix_judgeable() const { return unix_status_; }
  // Programs of earlier daemons of this instance are lifted: all of their sessions are judged by ours.
  void DropEarlier();
  // Null where the kernel cannot judge; says why.
  NetworkGate* gate() { return gate_.get(); }
  const absl::Status& enforceable() const { return enforceable_; }
  // Packets that have a route of their own are dropped.
  bool judges_packets() const { return packets_.ok(); }
  ProbeStats Stats() const override;
  // One line for each part that this kernel does not run: "unix_connect: not in this kernel (needs 6.7)".
  const std::vector<std::string>& Inactive() const { return inactive_; }

 private:
  NetworkProbe(BpfRing& ring, int base_cgroup_fd);
  struct NamedLink {
    std::string name;
    UniqueLink link;
    bool denies = false;
  };
  using Links = std::vector<NamedLink>;
  static absl::Status AttachOne(bpf_program* program, int cgroup_fd, absl::string_view part, Links& links);
  absl::Status AttachInet(int cgroup_fd, Links& links);
  absl::Status LoadInet();
  absl::Status MakeGate(const std::string& instance, const Clock& clock);
  absl::Status LoadUnix();
  // The links that deny in this session outlive us, or not any more.
  absl::Status Hold(uint64_t cgroup_id);
  void LetGo(uint64_t cgroup_id);
  std::string GroupOf(uint64_t cgroup_id) const;
  // What this kernel does not run, one line each.
  std::vector<std::string> AttachUnix(int cgroup_fd, Links& links);

  BpfRing& ring_;
  const int base_cgroup_fd_;
  UniqueSkeleton<network_bpf> inet_;
  UniqueSkeleton<unix_bpf> unix_;
  absl::Status packets_;  // whether packets that have a route of their own are stopped
  absl::Status unix_status_;
  std::shared_ptr<UnixPermits> permits_;
  Links links_;
  std::map<uint64_t, Links> own_links_;  // by cgroup
  std::vector<std::string> inactive_;
  absl::Status enforceable_;
  std::unique_ptr<NetworkGate> gate_;
  std::unique_ptr<BpfPins> pins_;
  std::map<std::string, std::set<uint64_t>> held_;  // by group of pins: the sessions that need it
};

}  // namespace agentmon
