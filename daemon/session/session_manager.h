// Starts, joins, finds again and ends sessions. Life of a session: docs/architecture.md.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "agentmon/v1/sessions.pb.h"
#include "common/base/clock.h"
#include "common/base/task_runner.h"
#include "common/base/worker_pool.h"
#include "common/kernel/proc_fs.h"
#include "daemon/enforce/shim_plan.h"
#include "daemon/event/event.h"
#include "daemon/limits/host_limits.h"
#include "daemon/limits/resource_keeper.h"
#include "daemon/policy/policies.h"
#include "daemon/session/caller.h"
#include "daemon/session/listener_sessions.h"
#include "daemon/session/observation.h"
#include "daemon/session/session_cgroups.h"
#include "daemon/session/session_files.h"
#include "daemon/session/systemd_scopes.h"

namespace agentmon {

struct SessionTries;

struct SessionLimits {
  size_t sessions_per_uid = 1000;
  size_t sessions = 4000;
  absl::Duration attach_timeout = absl::Seconds(30);  // from Start to the shim's Attach
  absl::Duration default_grace = absl::Seconds(3);
  bool refuse_missing_limits = true;  // a policy's limits that this host cannot set: refused, or run without
};

// What the manager works with; all outlive it.
struct SessionDeps {
  TaskRunner& core;
  WorkerPool& workers;
  const Clock& clock;
  SessionCgroups& cgroups;
  Observation& observation;
  Policies& policies;
  const HostLimits& host_limits;
  ResourceKeeper& resources;
  SystemdScopes* scopes;  // null: sessions are plain cgroups
  SessionFiles files;
  EventSink& events;  // session events go here
  // To the store; never blocks. Who stores removes the file of an ended session, once that is done.
  std::function<void(const v1::Session&)> save;
  std::function<void(const std::string&)> last_events;  // asks for what waits of a session that ends
  std::string canary_file = "", lsm_canary_file = "";   // see ShimPlanOptions
  UnixCanaries unix_canaries = {};                      // the same
  ListenerSessions* listeners = nullptr;  // not null: sessions have no cgroups, their listeners hold them
};

// Core thread, all of it. Completions run on the core thread.
class SessionManager : public EventSink {
 public:
  template <typename T>
  using Done = std::function<void(absl::StatusOr<T>)>;

  SessionManager(SessionDeps deps, SessionLimits limits);
  ~SessionManager() override;

  // Finds the sessions of an earlier daemon by their cgroups: living ones go on with a GAP event, what
  // belongs to dead ones is removed. `daemon_lost_ns`: CLOCK_BOOTTIME at which that daemon was lost, 0 =
  // not known.
  void Recover(uint64_t daemon_lost_ns);

  void Start(const Caller& caller, const v1::StartRequest& request, Done<v1::StartResponse> done);
  void Attach(const Caller& caller, const v1::AttachRequest& request, Done<v1::AttachResponse> done);
  absl::StatusOr<v1::ArmResponse> Arm(const Caller& caller, const v1::ArmRequest& request);
  void Prove(const Caller& caller, const v1::ProveRequest& request, Done<v1::ProveResponse> done);
  void Adopt(const Caller& caller, const v1::AdoptRequest& request, Done<v1::AdoptResponse> done);
  void StartWatch(const Caller& caller, pid_t pid, Done<v1::Session> done);
  void EndWatch(const std::string& id);
  void Stop(const Caller& caller, const v1::StopRequest& request, Done<v1::StopResponse> done);
  void SetPolicy(const Caller& caller, const v1::SetPolicyRequest& request, Done<v1::SetPolicyResponse> done);

  // Running ones that the caller may see, newest first.
  std::vector<v1::Session> List(const Caller& caller) const;
  // By id, unique prefix of at least 4 characters, or unique name; empty = the caller's own (agent) or
  // newest. NotFound when it is none of the running ones.
  absl::StatusOr<v1::Session> Get(const Caller& caller, const std::string& which) const;
  // The id that `which` means, as in Get.
  absl::StatusOr<std::string> IdOf(const Caller& caller, const std::string& which) const;
  // The kernel's number of its cgroup.
  absl::StatusOr<uint64_t> CgroupOf(const Caller& caller, const std::string& which) const;
  size_t running() const { return sessions_.size(); }
  // For sessions that start from now on.
  void SetSessionsPerUid(size_t limit) { limits_.sessions_per_uid = limit; }
  void SetRefuseMissingLimits(bool refuse) { limits_.refuse_missing_limits = refuse; }

  // When the daemon stops: ends what is empty, or never began; the others go on without it.
  void EndEmpty();

  // Nobody is left behind the listener that has this number.
  void OnListenerGone(uint64_t number);

  // After Recover: what sessions that are none of these say of their listener is over.
  void MarkLostListeners(const std::set<uint64_t>& served_cgroups);
  // After both: lets go on what was frozen because there was no daemon.
  void ThawRecovered();

  // Which session a record's cgroup means: its id, or empty.
  std::string SessionOfCgroup(uint64_t cgroup_id) const;

  // Stores that `lost` acts in the session of this cgroup were not recorded.
  void ReportLoss(uint64_t cgroup_id, v1::Source source, absl::string_view where, uint64_t lost);

  // Counts events per session, and notices the end of watched trees.
  void OnEvent(const Event& event) override;

 private:
  struct SessionState;
  using StatePtr = std::shared_ptr<SessionState>;

  absl::Status CheckMayStart(const Caller& caller) const;
  absl::StatusOr<v1::StartResponse> StartPrepared(const Caller& caller, const v1::StartRequest& request,
                                                  const Policies::PreparedPtr& policy);
  void AdoptPrepared(const Caller& caller, const v1::AdoptRequest& request,
                     const Policies::PreparedPtr& policy, const Done<v1::AdoptResponse>& done);
  absl::StatusOr<StatePtr> Make(uid_t uid, v1::Session::Origin origin);
  // Its cgroup is there: recorded and watched from now on.
  absl::Status UseCgroup(const StatePtr& state, Cgroup cgroup);
  absl::Status MakeCgroup(const StatePtr& state);
  // A session that its listener will hold; NO_LISTENER where there can be none.
  absl::Status BeginByListener(const StatePtr& state);
  bool IsHeldByListener(const SessionState& state) const;
  // From Attach to Arm nothing but its first process holds it.
  void HoldByFirstProcess(const StatePtr& state, const Caller& caller);
  void RecoverByListener(const v1::Session& known, uint64_t daemon_lost_ns);
  // The proxy that judges what its programs connect to, where the policy stops some of it.
  void PlanProxy(const StatePtr& state, const policy::Snapshot& snapshot);
  void RecoverProxy(const StatePtr& state);
  ProxiedSession Proxied(const SessionState& state) const;
  void KillByListener(const StatePtr& state, int rounds_left);
  MissingLimits HostMissing(const policy::ResourceLimits& limits) const;
  // Makes a session that has no cgroup yet a scope with this process in it, or a plain cgroup where no scope
  // can be made. Its limits hold after that.
  void BeginScope(const StatePtr& state, pid_t pid, std::function<void(absl::Status)> done);
  absl::Status UseScope(const StatePtr& state, pid_t pid);
  void LockCgroupsEarly();
  // Moves the process into the session's cgroup, on a worker; false = too busy.
  bool MoveInto(const StatePtr& state, const Caller& caller, std::function<void(absl::Status)> done);
  void CollectAdopted(const StatePtr& state, const Caller& caller, pid_t pid, const std::string& before,
                      const Done<v1::AdoptResponse>& done);
  void FinishAdopt(const StatePtr& state, pid_t pid, absl::StatusOr<int> moved, int left_out,
                   const Done<v1::AdoptResponse>& done);
  void FinishWatch(const Caller& caller, pid_t pid, uint64_t watch, const Policies::PreparedPtr& policy,
                   const Done<v1::Session>& done);
  void WatchClient(const StatePtr& state, const Caller& caller);
  void ForgetClient(const StatePtr& state);
  absl::StatusOr<StatePtr> Find(const Caller& caller, const std::string& which) const;
  void FinishAttach(const StatePtr& state, const Caller& caller, const std::string& no_namespace,
                    absl::Status moved, const Done<v1::AttachResponse>& done);
  absl::Status CanJudgeUnix(const SessionState& state) const;
  void PlanShim(const StatePtr& state, bool root);
  absl::Status EnterTries(const StatePtr& state, const v1::ProveRequest& request);
  void EnterBackstop(const StatePtr& state, const absl::Status& holds);
  absl::StatusOr<StatePtr> FindAttached(const Caller& caller, const std::string& token) const;
  void ForgetToken(const StatePtr& state);
  absl::Status AddMounts(const StatePtr& state, pid_t pid);
  void AddRules(const StatePtr& state, pid_t pid);
  void ProveRules(const StatePtr& state, std::function<void()> then);
  void EnterRuleTries(const StatePtr& state, const absl::StatusOr<SessionTries>& tries);
  void BeginRunning(const StatePtr& state, const Done<v1::AttachResponse>& done);
  void MoveAdopted(const StatePtr& state, const Caller& caller, pid_t pid, const std::string& before,
                   const Done<v1::AdoptResponse>& done);
  void SetPlannedControls(const StatePtr& state);
  void KeepPrivileges(const StatePtr& state, const policy::Snapshot& snapshot);
  void CheckPrivileges(const StatePtr& state, const std::function<void(const absl::Status&)>& done);
  void TellPrivileges(const StatePtr& state, const policy::Snapshot& snapshot);
  void FollowLossAction(const StatePtr& state);
  // False when the source was inactive before.
  bool SetSource(const StatePtr& state, v1::Source source, const absl::Status& status);
  void BeginPolicy(const StatePtr& state, const Policies::PreparedPtr& policy);
  void OnPolicyNotice(const std::string& id, v1::SessionChange::What what, const std::string& detail);
  void TellGap(const SessionState& state);
  // LIMITS_UNAVAILABLE when what is missing must not be.
  absl::Status CheckLimits(const policy::Snapshot& snapshot, const MissingLimits& missing) const;
  absl::Status BeginLimits(const StatePtr& state);  // before its first process
  void RecoverLimits(const StatePtr& state);
  void FollowLimits(const StatePtr& state);  // its policy was switched
  void FollowConnects(const StatePtr& state);
  void BeginResources(const StatePtr& state, absl::Duration age);
  void OnAct(SessionState& state, const Event& event);  // its resources are counted
  void EndResources(const StatePtr& state);
  void NoteLimits(const StatePtr& state, const policy::ResourceLimits& limits, const MissingLimits& missing);
  void TellMissingLimits(const SessionState& state);
  void TellUsage(SessionState& state, const v1::Usage& usage);
  MissingLimits LimitsMissing(const std::string& session, const policy::ResourceLimits& limits) const;
  void OnCgroupChange(const StatePtr& state);
  void BeginStop(const StatePtr& state, int64_t grace_ms, const std::string& reason);
  void End(const StatePtr& state, const std::string& reason);
  void EndWhenSettled(const StatePtr& state, int tries_left);
  void LeaveToManager(const StatePtr& state);
  void RemoveCgroup(const StatePtr& state, int tries_left);
  void Save(const StatePtr& state);
  Event OwnEvent(const SessionState& state, v1::EventKind kind) const;  // of the daemon, about this session
  void Emit(const SessionState& state, v1::SessionChange::What what, absl::string_view detail,
            uint64_t gap_ns = 0);
  void RecoverOne(const std::string& id, std::optional<v1::Session> known, uint64_t daemon_lost_ns);
  v1::Session Describe(const SessionState& state) const;

  SessionDeps deps_;
  SessionLimits limits_;
  ProcFs proc_;
  std::map<std::string, StatePtr> sessions_;  // by id
  absl::flat_hash_map<std::string, StatePtr> by_token_;
  absl::flat_hash_map<uint64_t, StatePtr> by_cgroup_;
  // Stop callers wait for the end.
  struct Waiter;
  std::multimap<std::string, std::shared_ptr<Waiter>> waiters_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // for tasks that come back late
};

}  // namespace agentmon
