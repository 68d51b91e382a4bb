// The second line of the network rules: nftables stops packets of a session's sockets that the first one, the
// programs on its cgroup, did not see. It is the socket that counts here, where it was made. Best effort:
// what cannot be put in place is said, and takes nothing down. docs/enforcement.md, "Behind it: nftables".
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/base/clock.h"
#include "common/base/unique_fd.h"
#include "daemon/enforce/name_gate.h"
#include "daemon/enforce/network_rules.h"
#include "daemon/enforce/nft_ruleset.h"
#include "daemon/enforce/nft_table.h"
#include "daemon/enforce/packet_rules.h"

namespace agentmon {

class Nft;

// Any thread. What is asked is done on a thread of its own, in this order for each session; only Settle
// and Pause wait. What is asked before Begin is done after it.
class NetworkBackstop {
 public:
  struct Options {
    NftRuleset::Options ruleset;  // the table is of this instance and of nobody else
    std::string cgroup_mount;     // of cgroup2
  };
  NetworkBackstop(Options options, const Clock& clock);
  // The table stays: it goes on without us, until the next daemon or the last session's end.
  ~NetworkBackstop();

  // A policy of NetworkGate, by its number there.
  struct Policy {
    uint32_t number = 0;
    std::shared_ptr<const NetworkRules> rules;
    bool closed = false;  // everything is denied
  };
  struct OpenedAddress {
    std::vector<NamedPorts> ports;
    int64_t until_ns = 0;
  };
  using OpenedAddresses = std::map<policy::Address, OpenedAddress>;

  // Nothing of the session is stopped here until the next SetPolicy; waits until that is so, 100 ms at most.
  // Between two policies: what the new one allows is not to meet the old one here.
  void Pause(uint64_t cgroup_id);
  // From now on this holds for the session. A policy that stops nothing needs no chain.
  void SetPolicy(uint64_t cgroup_id, Policy policy, OpenedAddresses names);
  void SetName(uint64_t cgroup_id, const policy::Address& address, OpenedAddress opened);
  void SetResolver(uint64_t cgroup_id, const ResolverTarget& target);
  void RemoveSession(uint64_t cgroup_id);
  // Until what was asked of this session so far is done, 100 ms at most; whether it is.
  bool Settle(uint64_t cgroup_id);

  // All sessions of an earlier daemon are known: what they need takes the place of what it left, in one step.
  // Nothing is changed before.
  void Begin();

  // Once what was asked of sessions so far is done. `done` is called on another thread.
  void AfterChanges(std::function<void()> done);
  // Whether the backstop stops what the program does not see: a datagram on this socket, which was made in
  // the session, to an address that no session may reach, sent by us. `done` is called on another thread.
  using Done = std::function<void(absl::Status)>;
  void Try(uint64_t cgroup_id, UniqueFd socket, Done done);
  // Packets stopped so far. `done` is called on another thread.
  void CountStopped(uint64_t cgroup_id, std::function<void(absl::StatusOr<uint64_t>)> done);
  // The commands that make the session's chain; with `apply`, the table is made anew with them before.
  void Plan(uint64_t cgroup_id, bool apply, std::function<void(absl::StatusOr<std::string>)> done);

  // Why there is no backstop on this host.
  absl::Status status() const;

 private:
  struct Wanted {
    Policy policy;
    bool paused = false;
    ResolverTarget resolver;
    OpenedAddresses names;
  };
  struct Applied {
    UniqueFd directory;   // of its cgroup: names it also once it is gone
    uint32_t policy = 0;  // 0: closed
    bool paused = false;
    ResolverTarget resolver;
    OpenedAddresses names;  // until_ns: when the kernel forgets it
  };
  struct StoredPolicy {
    PacketRules rules;
    size_t sessions = 0;
  };
  // What the kernel is to be told: one of the two.
  struct Change {
    std::string commands;
    NftChange elements;
  };
  enum class Cgroup { kDescriptor, kPath };

  void Run();
  bool MustWork() const;
  void DoBegin(std::map<uint64_t, Wanted> wanted);
  static bool Needs(const Wanted& wanted);
  void Apply(uint64_t cgroup_id, std::optional<Wanted> wanted);
  // These change the books and add what the kernel is to be told.
  absl::Status Enter(uint64_t cgroup_id, const Wanted& wanted, std::string& commands);
  Applied Leave(uint64_t cgroup_id, std::string& commands);
  absl::Status Update(uint64_t cgroup_id, Applied& applied, const Wanted& wanted, Change& change);
  void UpdateNames(uint64_t cgroup_id, Applied& applied, const OpenedAddresses& names, Change& change) const;
  absl::Status Tell(const Change& change);
  absl::Status Hold(const Policy& policy, std::string& commands);
  void LetGo(uint32_t policy, std::string& commands);

  static std::string NameOf(const Applied& applied, Cgroup naming);
  NftSession Describe(uint64_t cgroup_id, const Applied& applied, Cgroup naming) const;
  OpenedAddresses WithLinger(const OpenedAddresses& names) const;
  std::map<policy::Address, NamedAddress> Live(const OpenedAddresses& names) const;
  // All that stands in the books takes the place of what is there, in one step.
  absl::Status Rebuild();
  absl::Status TryNow(uint64_t cgroup_id, const UniqueFd& socket);
  absl::StatusOr<uint64_t> Stopped(uint64_t cgroup_id);
  absl::StatusOr<std::string> PlanNow(uint64_t cgroup_id, bool apply);
  absl::Status NotInPlace(uint64_t cgroup_id) const;
  void Fail(uint64_t cgroup_id, const absl::Status& status);
  void SetStatus(absl::Status status);

  const Options options_;
  const NftRuleset ruleset_;
  const Clock& clock_;

  mutable absl::Mutex mutex_;
  bool begun_ ABSL_GUARDED_BY(mutex_) = false;
  bool begin_is_due_ ABSL_GUARDED_BY(mutex_) = false;
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  bool behind_ ABSL_GUARDED_BY(mutex_) = false;  // a pause was not in place in time
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, Wanted> wanted_ ABSL_GUARDED_BY(mutex_);
  std::set<uint64_t> changed_ ABSL_GUARDED_BY(mutex_);
  std::optional<uint64_t> working_on_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::function<void()>> asked_ ABSL_GUARDED_BY(mutex_);  // after what has changed

  // The thread's own.
  absl::StatusOr<std::unique_ptr<Nft>> nft_;  // made before sessions have taken the low descriptors
  std::optional<NftTable> table_;             // once both are there, and the mount
  UniqueFd mount_;
  std::map<uint64_t, Applied> applied_;      // the books: what the kernel has
  std::map<uint64_t, absl::Status> failed_;  // why a session has nothing there
  std::map<uint32_t, StoredPolicy> policies_;

  std::thread thread_;
};

}  // namespace agentmon
