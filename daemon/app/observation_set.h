// The probes of this host, behind the interface that the session manager sees. A probe that cannot run
// here is missing and says why; the others run without it.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "common/kernel/cgroup.h"
#include "daemon/app/answer_progress.h"
#include "daemon/app/second_line.h"
#include "daemon/attribution/process_tree.h"
#include "daemon/holder/holder_client.h"
#include "daemon/probe/bpf_ring.h"
#include "daemon/probe/fanotify_probe.h"
#include "daemon/probe/lsm_probe.h"
#include "daemon/probe/network_probe.h"
#include "daemon/probe/notify_probe.h"
#include "daemon/probe/process_probe.h"
#include "daemon/probe/record_queue.h"
#include "daemon/proxy/proxy.h"
#include "daemon/resolver/session_names.h"
#include "daemon/session/observation.h"

namespace agentmon {

class ObservationSet : public Observation {
 public:
  struct UnixOptions {
    std::string directory;  // the daemon's own, for names of sockets; everybody may search it. Empty: none
    std::string canary;     // see UnixMeans
  };
  // Loads what this host can run. Never fails: what is missing stands in Sources(). `holder` may be null.
  // `instance`: its name, for what outlives the daemon.
  // lsm: where the programs on the hooks of security modules are pinned, and the file of the self-test that
  // they let through.
  // listener_gone: not null where sessions have no cgroups but their listeners' numbers. Called on the core
  // thread when nobody is left behind one. Execs are told by the notify source then.
  static std::unique_ptr<ObservationSet> Create(const Cgroup& base, const std::string& instance,
                                                TaskRunner& core, const Clock& clock, ProcessTree& tree,
                                                std::unique_ptr<HolderClient> holder, LsmProbe::Options lsm,
                                                const UnixOptions& unix_options,
                                                std::function<void(uint64_t)> listener_gone = nullptr);
  ~ObservationSet() override;
  // Calls of a session that the holder has answered, so that nothing was recorded of them.
  using Unseen =
      std::function<void(uint64_t cgroup_id, v1::Source source, absl::string_view why, uint64_t calls)>;
  // Records go to the sink from now on.
  void Start(RecordSink& sink, const Clock& clock, const Resolver::Options& resolver, Unseen unseen);
  // Serves the listeners that the holder kept, of those cgroups that are still sessions; these cgroups.
  std::set<uint64_t> TakeOverListeners(
      const std::function<bool(uint64_t cgroup_id)>& is_session,
      const std::function<std::shared_ptr<Gate>(uint64_t cgroup_id)>& gate_of);
  // What an earlier daemon left for sessions that are none any more.
  void RemoveOldRules();
  // CLOCK_BOOTTIME at which the daemon before this one was lost; 0 = not known.
  uint64_t daemon_lost_ns() const { return holder_ == nullptr ? 0 : holder_->alone_since_ns(); }

  // Null where the kernel judges no connects.
  NetworkGate* network_gate() { return network_ == nullptr ? nullptr : network_->gate(); }
  // Null where the kernel judges no connects.
  SecondLine* second_line() { return second_line_.get(); }
  // Null where names are not looked up for sessions; after Start.
  const SessionNames* names() const { return names_.get(); }
  // Once all sessions of an earlier daemon are judged by this one.
  void DropEarlier();

  absl::Status AddSession(uint64_t cgroup_id, int own_fd) override;
  absl::Status JudgeConnects(uint64_t cgroup_id, std::shared_ptr<const policy::Snapshot> snapshot) override;
  absl::StatusOr<ProxyDoor> OpenProxy(ProxiedSession session,
                                      const std::optional<ProxyDoor>& earlier) override;
  absl::Status CanJudgeUnix() const override;
  absl::Status JudgeUnix(uint64_t cgroup_id) override;
  bool BacksUpConnects(uint64_t cgroup_id) const override;
  void TryBackstop(uint64_t cgroup_id, UniqueFd socket, std::function<void(absl::Status)> done) override;
  void WhenBackstopFollows(std::function<void()> done) override;
  void TakeIn() override;
  void RemoveSession(uint64_t cgroup_id) override;
  bool Settled(uint64_t cgroup_id) override;
  absl::Status AddMounts(uint64_t cgroup_id, pid_t pid, std::shared_ptr<Gate> gate) override;
  std::vector<UnmarkedMount> Unmarked(uint64_t cgroup_id) const override;
  absl::Status AddRules(uint64_t cgroup_id, pid_t pid, std::shared_ptr<Gate> gate) override;
  bool StopsSockets(uint64_t cgroup_id) const override;
  bool StopsSignals(uint64_t cgroup_id) const override;
  void TakeInStopped() override;
  absl::Status AddListener(uint64_t cgroup_id, UniqueFd listener, std::shared_ptr<Gate> gate) override;
  absl::Status PolicyChanged(uint64_t cgroup_id) override;
  absl::Status SetLossAction(const Cgroup& cgroup, LossAction action) override;
  absl::StatusOr<int> CollectTree(pid_t root, const std::function<absl::Status(pid_t)>& move_one) override;
  absl::StatusOr<uint64_t> AddWatch(pid_t root) override;
  void SessionMembersChanged() override;
  bool WatchEnded(uint64_t watch_id) override;
  std::vector<v1::SourceState> Sources() const override;
  // Of hosts; in sessions, which all others are about, it is a source only where it runs.
  v1::SourceState LsmState() const;
  // Once an interval of some seconds: false when the threads that answer agents have stood still over two of
  // them.
  bool MakesProgress();

 private:
  // Takes in what the BPF programs have recorded before it hands on a record of another source.
  class AfterDrain : public RecordSink {
   public:
    AfterDrain(BpfRing* ring, RecordSink& next) : ring_(ring), next_(next) {}
    void OnRecord(absl::Span<const uint8_t> record) override {
      if (ring_ != nullptr) ring_->Drain();
      next_.OnRecord(record);
    }

   private:
    BpfRing* ring_;
    RecordSink& next_;
  };

  ObservationSet(TaskRunner& core, ProcessTree& tree, bool by_listener)
      : core_(core), tree_(tree), by_listener_(by_listener) {}
  template <typename P>
  void StartOne(v1::Source source, std::unique_ptr<P>& probe, RecordSink& sink);
  void StartProxy(const Clock& clock, const Resolver::Options& options);
  void StartNames(const Clock& clock, const Resolver::Options& options);
  absl::Status WatchHolder();
  void OnHolder();
  void OnHolderGone();
  absl::Status RestartHolder();
  // The holder keeps the channel to the session's mount keeper, if it has one.
  absl::Status HoldKeeper(uint64_t cgroup_id);
  // What the holder keeps of this cgroup, listener and group.
  void RemoveGroup(uint64_t cgroup_id);
  void CountUnseen(uint64_t cgroup_id, absl::string_view why, uint64_t calls);
  void VerifyExecs(uint64_t cgroup_id, absl::Duration lenient);
  std::shared_ptr<UnixOwner> OwnSockets() const;
  void Missing(v1::Source source, absl::Status status);
  v1::SourceState StateOf(v1::Source source, const Probe* probe) const;

  TaskRunner& core_;
  ProcessTree& tree_;
  std::unique_ptr<HolderClient> holder_;  // goes after the notify probe, which it takes over from
  std::unique_ptr<BpfRing> ring_;
  std::unique_ptr<ProcessProbe> process_;
  std::unique_ptr<SecondLine> second_line_;  // goes after the network probe, whose gate uses it
  std::unique_ptr<NetworkProbe> network_;
  std::unique_ptr<NotifyProbe> notify_;
  absl::StatusOr<std::shared_ptr<SocketAliases>> aliases_ = absl::UnavailableError("not started");
  std::unique_ptr<FanotifyProbe> fanotify_;
  std::unique_ptr<LsmProbe> lsm_;
  std::unique_ptr<AfterDrain> after_drain_;
  std::shared_ptr<RecordQueue> name_records_;
  std::unique_ptr<SessionNames> names_;  // uses the network probe's gate
  std::shared_ptr<RecordQueue> proxy_records_;
  std::unique_ptr<Proxy> proxy_;
  Unseen unseen_;
  AnswerProgress answers_;
  bool holder_lost_ = false;
  const bool by_listener_;     // sessions have no cgroups: nobody stands behind calls that name a socket
  bool keep_earlier_ = false;  // a session could not be taken over from its last daemon's programs
  std::map<uint64_t, std::shared_ptr<Gate>> gates_;             // of sessions whose calls are asked
  std::map<uint64_t, std::pair<UniqueFd, LossAction>> losses_;  // directories of cgroups: for the next holder
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // for tasks that come late
  std::map<v1::Source, std::string> missing_;                   // why
  // The kernel side of collecting a tree is one flag: one tree at a time.
  absl::Mutex collect_mutex_;
  uint32_t next_watch_ = 1;  // under collect_mutex_
};

}  // namespace agentmon
