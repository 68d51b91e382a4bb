// Has the kernel judge the connects and datagrams of sessions by their policies, and says what it decided.
// docs/enforcement.md, "Network".
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "agentmon/v1/event.pb.h"
#include "common/base/clock.h"
#include "common/policy/snapshot.h"
#include "common/policy/subject.h"
#include "daemon/enforce/name_gate.h"
#include "daemon/enforce/network_backstop.h"
#include "daemon/enforce/network_maps.h"
#include "daemon/enforce/network_rules.h"
#include "daemon/event/decode.h"

namespace agentmon {

// Any thread.
class NetworkGate : public NameGate {
 public:
  // Of programs that are loaded; keeps their maps by itself. `clock` outlives it.
  static absl::StatusOr<std::unique_ptr<NetworkGate>> Create(const NetworkMapFds& fds, const Clock& clock);

  // Sessions that are there still go on being judged as they are now.
  ~NetworkGate() override;

  // Is told what holds for sessions; outlives the gate. Before the first session.
  void SetBackstop(NetworkBackstop* backstop);

  // From now on this is the session's policy: all of it is written first, then switched in one step. Sessions
  // with equal rules share them. On an error a session that is new here stays one that is not judged, and one
  // that was judged is denied everything. Waits for the backstop, 100 ms at most.
  absl::Status SetPolicy(uint64_t cgroup_id, std::shared_ptr<const policy::Snapshot> snapshot);
  // After its last process has ended.
  void RemoveSession(uint64_t cgroup_id);
  bool Judges(uint64_t cgroup_id) const;
  size_t sessions() const;
  // The session's policy denies something.
  bool Stops(uint64_t cgroup_id) const;

  // What denied this act, for its event. The policy that was asked may have been switched since.
  v1::Judgement Describe(uint64_t cgroup_id, const KernelVerdict& verdict,
                         const policy::Subject& subject) const;
  // What denies packets to there by the policy of the moment, for the event of one that the backstop stopped.
  v1::Judgement DescribePacket(uint64_t cgroup_id, const policy::Subject& subject, int error) const;
  // The policy that was asked; null when it is not known any more.
  std::shared_ptr<const policy::Snapshot> SnapshotOf(uint64_t cgroup_id, uint32_t policy) const;

  absl::Status OpenAddress(uint64_t cgroup_id, absl::string_view name, const policy::Address& address,
                           int64_t expires_boot_ns) override;
  void CloseName(uint64_t cgroup_id, absl::string_view name) override;
  absl::Status SetResolver(uint64_t cgroup_id, const ResolverTarget& target) override;
  absl::StatusOr<RedirectedSocket> FindRedirected(uint64_t cookie) const override;
  void Settle(uint64_t cgroup_id) override;

  // For tests.
  size_t rules_in_use() const;

 private:
  struct Stored {  // a policy as it lies in the maps
    std::shared_ptr<const NetworkRules> rules;
    std::shared_ptr<NetworkMaps::Policy> policy;
  };
  struct Version {  // of a session's policy
    std::shared_ptr<const Stored> stored;
    std::shared_ptr<const policy::Snapshot> snapshot;
    int64_t until_ns = 0;  // when it was replaced
  };
  struct Session {
    uint32_t slot = 0;
    bool closed = false;
    Version current;
    std::deque<Version> past;
    std::map<policy::Address, std::vector<OpenName>> names;
    std::map<policy::Address, std::shared_ptr<NetworkMaps::Opened>> opened;  // under the current policy
    int64_t pruned_ns = 0;
  };
  using Lock = absl::Mutex;

  NetworkGate(std::shared_ptr<NetworkMaps> maps, const Clock& clock)
      : maps_(std::move(maps)), clock_(clock) {}
  absl::StatusOr<std::shared_ptr<const Stored>> Store(NetworkRules rules)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<std::shared_ptr<NetworkMaps::Opened>> MakeOpened(uint64_t cgroup_id, const Version& version,
                                                                  const policy::Address& address,
                                                                  const std::vector<OpenName>& names)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Publish(uint64_t cgroup_id, Session& session, const policy::Address& address)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status SetRules(uint64_t cgroup_id, NetworkRules rules,
                        std::shared_ptr<const policy::Snapshot> snapshot)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Switch(uint64_t cgroup_id, Session& session, Version version)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Point(Session& session) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static uint32_t FlagsOf(const Session& session);
  void Prune(Session& session, int64_t now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Retire(std::shared_ptr<const void> what) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CloseOpened(Session& session) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Mirror(uint64_t cgroup_id, const Session& session) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void MirrorName(uint64_t cgroup_id, const Session& session, const policy::Address& address)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  NetworkBackstop::OpenedAddress OpenedBy(const Version& version, const policy::Address& address,
                                          const std::vector<OpenName>& names) const;
  void Sweep() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  const Version* FindVersion(uint64_t cgroup_id, uint32_t policy) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable absl::Mutex mutex_;
  const std::shared_ptr<NetworkMaps> maps_ ABSL_GUARDED_BY(mutex_);
  const Clock& clock_;
  NetworkBackstop* backstop_ ABSL_GUARDED_BY(mutex_) = nullptr;
  std::map<std::string, std::weak_ptr<const Stored>> stored_ ABSL_GUARDED_BY(mutex_);  // by fingerprint
  std::map<uint64_t, Session> sessions_ ABSL_GUARDED_BY(mutex_);
  // What programs may still look at, and since when they should not.
  std::deque<std::pair<int64_t, std::shared_ptr<const void>>> retired_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace agentmon
