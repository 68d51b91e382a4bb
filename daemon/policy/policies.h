// The policies of root and of the running sessions: reading, compiling, switching, judging.
// docs/architecture.md, "Policies".
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "agentmon/v1/policy.pb.h"
#include "agentmon/v1/sessions.pb.h"
#include "common/base/clock.h"
#include "common/base/task_runner.h"
#include "common/base/worker_pool.h"
#include "common/policy/current.h"
#include "daemon/limits/limit_plan.h"
#include "daemon/policy/gate.h"
#include "daemon/policy/judge.h"
#include "daemon/policy/policy_library.h"
#include "daemon/policy/session_policy.h"
#include "daemon/policy/unmarked_mount.h"

namespace agentmon {

// Core thread, all of it; reading and compiling happen on the workers. Completions run on the core thread.
class Policies {
 public:
  template <typename T>
  using Done = std::function<void(absl::StatusOr<T>)>;
  // Something to be told of a session: POLICY_CHANGED or POLICY_REJECTED.
  using Notice = std::function<void(const std::string& session, v1::SessionChange::What what,
                                    const std::string& detail)>;

  // What of a policy's limits a session lacks; of a session that is yet to come when none is named.
  using LimitsOf =
      std::function<MissingLimits(const std::string& session, const policy::ResourceLimits& limits)>;
  // Mounts of a session about which nothing is asked.
  using UnmarkedOf = std::function<std::vector<UnmarkedMount>(const std::string& session)>;
  // Whether a running session may be given this policy; asked before it is.
  using MayTake = std::function<absl::Status(const policy::Snapshot& snapshot)>;

  struct Deps {
    TaskRunner& core;
    WorkerPool& workers;
    const Clock& clock;
    const ProcessTree& tree;
    OwnPaths own;
  };
  struct Prepared {
    PolicyRequest request;
    CompiledPolicy compiled;
    uint64_t library_generation = 0;
  };
  using PreparedPtr = std::shared_ptr<Prepared>;

  Policies(Deps deps, PolicyPlaces places);
  ~Policies();
  void SetNotice(Notice notice) { notice_ = std::move(notice); }
  void SetLimits(LimitsOf limits_of, MayTake may_take) {
    limits_of_ = std::move(limits_of);
    may_take_ = std::move(may_take);
  }

  void SetUnmarked(UnmarkedOf unmarked_of) { unmarked_of_ = std::move(unmarked_of); }

  // Whether the kernel of this host can judge connects.
  void SetJudgesConnects(bool judges) { judges_connects_ = judges; }
  // Or connects and sends are judged where they are asked.
  void SetJudgesNetworkCalls(bool judges) { judges_network_calls_ = judges; }
  // Whether calls on unix sockets can be judged here.
  void SetJudgesUnix(bool judges) { judges_unix_ = judges; }
  // Whether names are looked up for sessions, so that it is known which name an address stands for.
  void SetJudgesNames(bool judges) { judges_names_ = judges; }

  // Before the loop runs: reads root's files here and now. Broken ones are replaced, and Problems says so.
  void LoadAtStart();
  // Reads root's files again; a file that does not load changes nothing. All sessions are switched at once.
  void Reload(Done<v1::ReloadPoliciesResponse> done);
  // Other places, from the configuration; takes effect with the next Reload.
  void SetPlaces(PolicyPlaces places) { places_ = std::move(places); }
  const PolicyPlaces& places() const { return places_; }

  // Compiles what a session asks for; without a snapshot the diagnostics say why.
  void Compile(uid_t uid, std::string workspace, v1::PolicyChoice choice, Done<PreparedPtr> done);
  // The same, and what does not compile is "BAD_POLICY".
  void Prepare(uid_t uid, std::string workspace, v1::PolicyChoice choice, Done<PreparedPtr> done);
  // The controls of a session that hold, by name; of its shim and what it was told to do.
  void SetControls(const std::string& session, std::set<std::string> controls);
  // From here on the session's events are judged.
  void Begin(const v1::Session& session, const PreparedPtr& prepared);
  // Its first process is known: its terminals are the session's.
  void SetFirstProcess(const std::string& session, pid_t pid);
  // As it was before the daemon's restart. Compiles here and now; what does not compile any more is replaced
  // by reads only, below the floor.
  void Recover(const v1::Session& session);
  void End(const std::string& session);
  // Switches a running session; "NEEDS_NEW_SESSION" names what could not take effect, and switches nothing.
  void SetPolicy(const std::string& session, v1::PolicyChoice choice, Done<bool> done);

  // Writes the judgement into an event of a session.
  void Judge(Event* event);
  // The same of what the kernel has judged, by this policy, and let go. Null: by one that is not known any
  // more.
  void JudgeLetGo(const policy::Snapshot* snapshot, Event* event);

  // With `rules`: how each rule is enforced, given the sources that are active in the session.
  v1::PolicyState Describe(const std::string& session, bool rules, const std::set<v1::Source>& sources) const;
  // Finds what nothing enforces in a session with these sources; one line for NOT_ENFORCED, empty = nothing.
  std::string FindGap(const std::string& session, const std::set<v1::Source>& sources);
  // What its policy requires to be enforced and a session with these sources cannot enforce, one line; empty
  // = nothing.
  std::string FindUnenforceable(const std::string& session, const std::set<v1::Source>& sources) const;
  // Null when the session is not known. Outlives the session for whoever holds it.
  std::shared_ptr<Gate> GateOf(const std::string& session) const;
  // How each rule of a compiled policy would be enforced in a session with these sources.
  std::vector<v1::RuleEnforcement> Enforcement(const policy::Snapshot& snapshot,
                                               const std::set<v1::Source>& sources,
                                               const std::string& session = "") const;
  // Null when the session is not known.
  std::shared_ptr<const policy::Snapshot> SnapshotOf(const std::string& session) const;
  PolicyRequest RequestOf(const std::string& session) const;  // empty when not known
  absl::StatusOr<v1::GetPolicyResponse> Layers(const std::string& session) const;
  std::shared_ptr<const PolicyLibrary> library() const { return library_; }
  // What is wrong with root's files, one line each; empty = nothing.
  std::vector<std::string> Problems() const;

 private:
  struct SessionEntry {
    PolicyRequest request;
    std::shared_ptr<policy::CurrentSnapshot> current;
    std::shared_ptr<Gate> gate;
    std::set<std::string> controls;
    std::vector<policy::LayerInput> layers;
    uint64_t generation = 1, library_generation = 0;
    uint64_t choices = 0;  // counts SetPolicy: what was compiled for an earlier choice is not used
    uint32_t not_enforced = 0;
    size_t sent_patterns = 0;
    std::string problem;
    JudgedSession judged;
    bool kept = false;  // its choice is written for the next daemon
  };
  struct Round;  // one reload
  // What a user has compiled now, and what waits: one user's do not fill the workers.
  struct Turn {
    int running = 0;
    std::deque<Task> waiting;
  };

  // Runs the work on a worker when it is this user's turn, then `after` on the core thread; false = too busy.
  bool PostFor(uid_t uid, Task work, Task after);
  void RunNext(uid_t uid);

  void StartRound();
  void FinishReading(const std::shared_ptr<Round>& round);
  void FinishCompiling(const std::shared_ptr<Round>& round);
  void EndRound(const std::shared_ptr<Round>& round);
  void PutOff(const std::shared_ptr<Round>& round);
  void Reject(const PolicyLibrary& broken);
  void CatchUp(const std::string& session);
  void Switch(const std::string& session, SessionEntry& entry, CompiledPolicy compiled,
              absl::string_view why);
  void Keep(const std::string& session, SessionEntry& entry);
  std::string KeptPath(const std::string& session) const;
  std::string ArchivePath() const { return deps_.own.state_dir + "/policies.last-good"; }
  // What could not be kept is removed: an old copy must not pass for the last one. Any thread; may wait for
  // the disk.
  absl::Status NoPolicies() const;
  static absl::Status SaveArchive(const PolicyLibrary& library, const std::string& path);
  void OnArchived(const absl::Status& saved);

  Deps deps_;
  PolicyPlaces places_;
  Notice notice_;
  LimitsOf limits_of_;
  UnmarkedOf unmarked_of_;
  MayTake may_take_;
  std::shared_ptr<const PolicyLibrary> library_;
  uint64_t library_generation_ = 1;
  policy::Diagnostics problems_;  // of the last reading
  std::string fallback_;          // what is in force in place of broken files since the start
  std::map<std::string, SessionEntry> sessions_;
  std::map<uid_t, Turn> turns_;
  agentmon::Judge judge_;
  std::shared_ptr<Round> round_;  // under way
  std::vector<Done<v1::ReloadPoliciesResponse>> waiting_;
  bool again_ = false;
  bool judges_connects_ = false, judges_network_calls_ = false, judges_names_ = false, judges_unix_ = false;
  bool archive_stale_ = false;  // the last good policies could not be kept
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace agentmon
