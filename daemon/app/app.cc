#include "daemon/app/app.h"

#include <grp.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/utsname.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/files.h"
#include "common/base/footprint.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "common/base/version.h"
#include "daemon/app/directories.h"
#include "daemon/app/passed_socket.h"
#include "daemon/rpc/health_service.h"
#include "daemon/rpc/host_service.h"
#include "daemon/rpc/policy_service.h"
#include "daemon/rpc/sessions_service.h"
#include "daemon/rpc/timeline_service.h"

namespace agentmon {
namespace {

constexpr int kWorkers = 4;
constexpr size_t kWaitingWork = 4000;
constexpr int kCanaryTurn = 64;  // connections of one turn of the core
constexpr absl::Duration kRecoveryFlush = absl::Seconds(1);
constexpr absl::Duration kPoliciesSettle = absl::Milliseconds(200);

absl::StatusOr<gid_t> AdminGid(const std::string& group) {
  if (group.empty()) return static_cast<gid_t>(-1);
  const struct group* entry = ::getgrnam(group.c_str());
  if (entry == nullptr)
    return absl::NotFoundError(absl::StrCat("admin_group: no group '", group, "' on this host"));
  return entry->gr_gid;
}

std::string KernelRelease() {
  utsname name{};
  ::uname(&name);
  return absl::StrCat(name.sysname, " ", name.release);
}

}  // namespace

absl::StatusOr<std::unique_ptr<App>> App::Create(const Options& options, Config config,
                                                 JournalSocket* journal) {
  auto app = std::unique_ptr<App>(new App(options, std::move(config), journal));
  RETURN_IF_ERROR(app->OpenDirectories());
  auto holder = StartOrJoinHolder(app->config_.runtime_dir);
  if (holder.ok())
    app->holder_ = std::move(*holder);
  else
    LogError("holder: ", holder.status().message());
  ASSIGN_OR_RETURN(app->loop_, EventLoop::Create());
  RETURN_IF_ERROR(app->WatchSignals());
  RETURN_IF_ERROR(app->OpenStore());
  RETURN_IF_ERROR(app->StartSessions());
  RETURN_IF_ERROR(app->WatchPolicies());
  RETURN_IF_ERROR(app->StartServer());
  return app;
}

absl::Status App::OpenDirectories() {
  RETURN_IF_ERROR(PrepareDirectory(config_.state_dir, 0700));
  RETURN_IF_ERROR(PrepareDirectory(config_.runtime_dir, options_.user ? 0700 : 0755));
  ASSIGN_OR_RETURN(StateLock lock, StateLock::Acquire(config_.state_dir));
  lock_.emplace(std::move(lock));
  // Before anything of an earlier daemon is touched: whoever listens owns the runtime directory.
  return OpenSocket();
}

absl::Status App::OpenSocket() {
  ASSIGN_OR_RETURN(listener_, TakePassedSocket(config_.socket_path()));
  socket_is_passed_ = listener_.valid();
  if (socket_is_passed_) return absl::OkStatus();
  ASSIGN_OR_RETURN(listener_, ListenOn(config_.socket_path(), options_.user ? 0600 : 0666));
  return absl::OkStatus();
}

// A file that everybody may read but sessions: what a session's shim tries, to prove that it cannot. Empty
// when it could not be made: then nothing proves it, and the session says so.
std::string App::MakeCanary(const std::string& runtime_dir, absl::string_view name) {
  const std::string directory = runtime_dir + "/canary", file = absl::StrCat(directory, "/", name);
  absl::Status made = PrepareDirectory(directory, 0755);
  if (made.ok()) made = ReplaceFile(file, "a file of agentmon's self-test\n", 0644, Outlives::kProcess);
  if (made.ok()) return file;
  LogWarning("make the file of the self-test: ", made.message());
  return "";
}

// Empty names: they could not be made, and nothing would prove the control. Who connects is let go again: a
// full queue would keep the self-test from its answer.
UnixCanaries App::MakeCanarySockets() {
  absl::Status made = PrepareDirectory(config_.runtime_dir + "/unix", 0711);
  absl::StatusOr<CanarySockets> sockets = CanarySockets::Create(config_.runtime_dir + "/canary");
  if (made.ok()) made = sockets.status();
  if (made.ok()) {
    made = loop_->WatchFd(sockets->listener(), [this] {
      for (int i = 0; i < kCanaryTurn; ++i) {
        if (!UniqueFd(::accept4(canary_sockets_->listener(), nullptr, nullptr, SOCK_CLOEXEC)).valid()) return;
      }
    });
  }
  if (!made.ok()) {
    LogWarning("make the sockets of the self-test: ", made.message());
    return {};
  }
  canary_sockets_.emplace(*std::move(sockets));
  return canary_sockets_->names();
}

absl::Status App::WatchSignals() {
  for (const int signal : {SIGTERM, SIGINT}) {
    RETURN_IF_ERROR(loop_->OnSignal(signal, [this] { loop_->Quit(); }));
  }
  return loop_->OnSignal(SIGHUP, [this] { Reload(); });
}

absl::Status App::OpenStore() {
  EventStore::Options options;
  options.dir = config_.state_dir;
  options.clock = &clock_;
  options.writer.retention.max_bytes = config_.max_size_bytes;
  options.writer.retention.max_age = config_.max_age;
  options.writer.on_stored = [this](const Event& event, bool repeated) {
    if (StreamHub* hub = hub_for_store_.load()) hub->OnStored(event, repeated);
  };
  options.writer.on_session_ended =
      [files = SessionFiles(config_.runtime_dir + "/sessions")](const std::string& id) { files.Remove(id); };
  ASSIGN_OR_RETURN(store_, EventStore::Open(std::move(options)));
  StreamHub::Options hub;
  hub.last_seq = store_->last_seq();
  hub.owner_of = [this](absl::string_view session) { return store_->OwnerOf(session); };
  hub_ = std::make_unique<StreamHub>(std::move(hub));
  hub_for_store_ = hub_.get();
  return absl::OkStatus();
}

absl::Status App::MakeCgroups() {
  ASSIGN_OR_RETURN(const std::string mount, FindCgroup2Mount());
  const std::string instance = InstanceName(config_.runtime_dir);
  if (options_.user) {
    const auto own = ProcFs().CgroupPath(::getpid());
    if (::getenv("AGENTMON_SESSION") != nullptr || !own.ok() || IsSessionCgroupPath(*own))
      return absl::PermissionDeniedError(
          "no daemon is started inside of a session: what runs here is recorded");
    listeners_ = std::make_unique<ListenerSessions>();
    ASSIGN_OR_RETURN(cgroups_, SessionCgroups::None(*loop_, mount));
    host_limits_ = std::make_unique<HostLimits>(HostLimits::Places{mount, mount});
    return absl::OkStatus();
  }
  // Units have one name space: those of other instances are not theirs.
  const bool scopes = ::sd_booted() > 0 && instance == kMainInstance;
  ASSIGN_OR_RETURN(cgroups_, SessionCgroups::Create(*loop_, mount, instance, scopes));
  if (scopes) scopes_ = std::make_unique<SystemdScopes>(*loop_, loop_->event(), sd_bus_open_system);
  host_limits_ = std::make_unique<HostLimits>(HostLimits::Places{mount, cgroups_->base().path()});
  return absl::OkStatus();
}

absl::Status App::StartSessions() {
  RETURN_IF_ERROR(MakeCgroups());
  const std::string instance = InstanceName(config_.runtime_dir);
  ASSIGN_OR_RETURN(resources_, ResourceKeeper::Create(*loop_, clock_));
  const std::string canary = MakeCanary(config_.runtime_dir, "file");
  const UnixCanaries sockets = MakeCanarySockets();
  observation_ = ObservationSet::Create(
      cgroups_->base(), instance, *loop_, clock_, tree_, std::move(holder_),
      {"/sys/fs/bpf/agentmon/" + instance, 0, canary},
      {sockets.name.empty() ? "" : config_.runtime_dir + "/unix", sockets.name}, ListenerGone());
  workers_ = std::make_unique<WorkerPool>(kWorkers, kWaitingWork);
  policies_ = std::make_unique<Policies>(
      Policies::Deps{*loop_, *workers_, clock_, tree_, OwnPaths{config_.state_dir, config_.runtime_dir}},
      config_.policies);
  policies_->LoadAtStart();
  policies_->SetJudgesConnects(observation_->network_gate() != nullptr);
  policies_->SetJudgesNetworkCalls(options_.user);
  SessionLimits limits;
  limits.sessions_per_uid = config_.sessions_per_uid;
  limits.refuse_missing_limits = config_.refuse_missing_limits;
  // The manager's events go through the pipeline, and the pipeline's events are counted by the manager.
  pipeline_ = std::make_unique<Pipeline>(
      *loop_, clock_, tree_, [this](uint64_t cgroup) { return sessions_->SessionOfCgroup(cgroup); },
      [this](Decoded* record) { return Judge(record); }, config_.runtime_dir + "/pending-counts");
  sessions_ = std::make_unique<SessionManager>(
      SessionDeps{*loop_, *workers_, clock_, *cgroups_, *observation_, *policies_, *host_limits_, *resources_,
                  scopes_.get(), SessionFiles(config_.runtime_dir + "/sessions"), *pipeline_,
                  [this](const v1::Session& session) { store_->UpsertSession(session); },
                  [this](const std::string& session) { pipeline_->EndSession(session); }, canary,
                  MakeCanary(config_.runtime_dir, "lsm"), sockets, listeners_.get()},
      limits);
  pipeline_->AddSink(sessions_.get());
  pipeline_->AddSink(store_.get());
  if (journal_ != nullptr) {
    journal_sink_ = std::make_unique<JournalSink>(
        *loop_, [this](const JournalFields& fields) { journal_->Send(fields); },
        [this](absl::string_view session) { return store_->OwnerOf(session); });
    pipeline_->AddSink(journal_sink_.get());
  }
  pipeline_->TakePending();
  Resolver::Options resolver;
  resolver.upstream.servers = config_.dns_servers;
  observation_->Start(*pipeline_, clock_, resolver,
                      [this](uint64_t cgroup, v1::Source source, absl::string_view why, uint64_t calls) {
                        sessions_->ReportLoss(cgroup, source, why, calls);
                      });
  policies_->SetJudgesUnix(observation_->CanJudgeUnix().ok());
  policies_->SetJudgesNames(observation_->names() != nullptr);
  sessions_->Recover(observation_->daemon_lost_ns());
  observation_->DropEarlier();
  sessions_->MarkLostListeners(observation_->TakeOverListeners(
      [this](uint64_t cgroup) { return !sessions_->SessionOfCgroup(cgroup).empty(); },
      [this](uint64_t cgroup) { return policies_->GateOf(sessions_->SessionOfCgroup(cgroup)); }));
  observation_->RemoveOldRules();
  sessions_->ThawRecovered();
  // A daemon that is killed a moment later has said from when until when nothing was recorded.
  if (!store_->Flush(kRecoveryFlush)) LogWarning("what recovery found is not stored yet");
  return absl::OkStatus();
}

// Null where sessions are cgroups.
std::function<void(uint64_t)> App::ListenerGone() {
  if (!options_.user) return nullptr;
  return [this](uint64_t number) { sessions_->OnListenerGone(number); };
}

bool App::Judge(Decoded* record) {
  const std::optional<policy::Subject> connection = NetworkSubject(record->event);
  if (connection.has_value() && observation_ != nullptr && observation_->names() != nullptr) {
    record->event.mutable_net()->set_name(
        observation_->names()->NameOf(record->cgroup_id, *connection, record->event.boot_ns()));
  }
  const KernelVerdict& verdict = record->verdict;
  const NetworkGate* gate = observation_ == nullptr ? nullptr : observation_->network_gate();
  Event& event = record->event;
  if (verdict.verdict == AM_VERDICT_NONE || gate == nullptr) {
    policies_->Judge(&event);
  } else if (verdict.verdict == AM_VERDICT_DENIED) {
    *event.mutable_judgement() =
        event.has_unix()
            ? DescribeUnjudgedSocket()
            : gate->Describe(record->cgroup_id, verdict, NetworkSubject(event).value_or(policy::Subject()));
    const std::shared_ptr<Gate> session = policies_->GateOf(event.session());
    return session == nullptr || !session->proving();
  } else {
    policies_->JudgeLetGo(gate->SnapshotOf(record->cgroup_id, verdict.policy).get(), &event);
  }
  return true;
}

absl::Status App::WatchPolicies() {
  ASSIGN_OR_RETURN(policy_watcher_, PolicyWatcher::Create(*loop_, policies_->places(), kPoliciesSettle,
                                                          [this] { policies_->Reload(nullptr); }));
  return absl::OkStatus();
}

DebugService::Plans App::NetworkPlans() {
  DebugService::Plans plans;
  const absl::Status none = absl::UnavailableError("the kernel judges no connects on this host");
  plans.of_session = [this, none](uint64_t cgroup_id, bool apply, CoreDone<std::string> done) {
    SecondLine* second = observation_->second_line();
    if (second == nullptr) return done(none);
    second->Plan(cgroup_id, apply, std::move(done));
  };
  plans.of_policy = [this, none](const policy::Snapshot& snapshot) -> absl::StatusOr<std::string> {
    const SecondLine* second = observation_->second_line();
    if (second == nullptr) return none;
    return second->PlanOf(snapshot);
  };
  return plans;
}

absl::Status App::StartServer() {
  ASSIGN_OR_RETURN(const gid_t admin, AdminGid(config_.admin_group));
  peers_ = listeners_ != nullptr ? std::make_unique<Peers>(*cgroups_, *listeners_, Peers::Limits())
                                 : std::make_unique<Peers>(*cgroups_, admin, Peers::Limits());
  rpc_ = std::unique_ptr<RpcDeps>(new RpcDeps{*loop_, *peers_, *sessions_, *policies_});
  services_.push_back(std::make_unique<SessionsService>(*rpc_, *store_, *hub_));
  services_.push_back(std::make_unique<TimelineService>(*rpc_, *store_, *hub_));
  services_.push_back(std::make_unique<PolicyService>(*rpc_));
  services_.push_back(std::make_unique<HostService>(*rpc_, [this] { return Status(); }));
  services_.push_back(std::make_unique<DebugService>(*rpc_, NetworkPlans()));
  services_.push_back(std::make_unique<HealthService>(*rpc_));
  std::vector<grpc::Service*> services;
  for (const auto& service : services_) services.push_back(service.get());
  ASSIGN_OR_RETURN(server_, RpcServer::Create(std::move(listener_), *peers_, services));
  return absl::OkStatus();
}

absl::Status App::Run() {
  LogInfo("agentmond ", kVersion, " listens on ", config_.socket_path(), ", ", sessions_->running(),
          sessions_->running() == 1 ? " session found again" : " sessions found again");
  sd_notify(0, "READY=1");
  StartWatchdog();
  GiveBackMemory();  // what only a start needs
  const absl::Status status = loop_->Run();
  sd_notify(0, "STOPPING=1");
  const size_t running = sessions_->running();
  LogInfo("stopping; ", running, running == 1 ? " session goes" : " sessions go",
          " on without being recorded until the next start");
  return status;
}

void App::StartWatchdog() {
  watchdog_ = std::make_unique<ServiceWatchdog>(
      ServiceWatchdog::Deps{*loop_, [this] { return observation_->MakesProgress(); },
                            [] { sd_notify(0, "WATCHDOG=1"); }},
      ServiceWatchdog::AskedTimeout());
}

// In reverse: nobody asks any more, nothing is recorded any more, what was recorded is written.
App::~App() {
  if (hub_ != nullptr) hub_->End();
  server_.reset();
  if (!socket_is_passed_ && (listener_.valid() || rpc_ != nullptr)) ::unlink(config_.socket_path().c_str());
  workers_.reset();
  if (sessions_ != nullptr) sessions_->EndEmpty();
  if (pipeline_ != nullptr) pipeline_->EndAll();
  observation_.reset();
  sessions_.reset();
  if (canary_sockets_.has_value()) loop_->UnwatchFd(canary_sockets_->listener());
  pipeline_.reset();
  journal_sink_.reset();
  policy_watcher_.reset();
  policies_.reset();
  if (store_ != nullptr) store_->Close(absl::Seconds(3));
  hub_for_store_ = nullptr;
}

void App::Reload() {
  sd_notifyf(0, "RELOADING=1\nMONOTONIC_USEC=%lld",
             static_cast<long long>(absl::ToInt64Microseconds(absl::Nanoseconds(clock_.BootNs()))));
  absl::StatusOr<Config> fresh = EffectiveConfig(options_);
  if (!fresh.ok()) {
    reload_error_ =
        absl::StrCat("the configuration was not reloaded, the old one holds: ", fresh.status().message());
    LogError(reload_error_);
  } else {
    reload_error_.clear();
    const bool restart = fresh->state_dir != config_.state_dir || fresh->runtime_dir != config_.runtime_dir ||
                         fresh->socket_path() != config_.socket_path() ||
                         fresh->admin_group != config_.admin_group ||
                         fresh->dns_servers != config_.dns_servers;
    if (restart) {
      reload_error_ =
          "directories, socket, admin_group or resolver changed in the configuration: restart agentmond to "
          "use them";
      LogWarning(reload_error_);
    }
    config_.log_level = fresh->log_level;
    config_.max_age = fresh->max_age;
    config_.max_size_bytes = fresh->max_size_bytes;
    config_.sessions_per_uid = fresh->sessions_per_uid;
    SetLogLevel(config_.log_level);
    store_->SetRetention(config_.max_size_bytes, config_.max_age);
    sessions_->SetSessionsPerUid(config_.sessions_per_uid);
    config_.refuse_missing_limits = fresh->refuse_missing_limits;
    sessions_->SetRefuseMissingLimits(config_.refuse_missing_limits);
    if (!(fresh->policies == config_.policies)) {
      config_.policies = fresh->policies;
      policies_->SetPlaces(config_.policies);
      policy_watcher_.reset();
      if (const absl::Status s = WatchPolicies(); !s.ok()) LogWarning(s.message());
    }
    policies_->Reload(nullptr);
    LogInfo("configuration reloaded");
  }
  sd_notify(0, "READY=1");
}

v1::StatusResponse App::Status() const {
  v1::StatusResponse status;
  status.set_version(kVersion);
  status.set_pid(::getpid());
  status.set_started_ns(absl::ToUnixNanos(started_));
  status.set_state_dir(config_.state_dir);
  status.set_socket(config_.socket_path());
  status.set_kernel(KernelRelease());
  bool lsm = false;
  for (const v1::SourceState& source : observation_->Sources()) {
    *status.add_sources() = source;
    lsm |= source.source() == v1::LSM;
  }
  if (!lsm) *status.add_sources() = observation_->LsmState();
  *status.mutable_store() = store_->Status();
  if (!reload_error_.empty()) status.add_warnings(reload_error_);
  if (scopes_ != nullptr && !scopes_->problem().empty()) status.add_warnings(scopes_->problem());
  for (const std::string& problem : policies_->Problems()) status.add_warnings(problem);
  status.set_default_policy(policies_->library()->default_policy);
  for (const PolicyFile& file : policies_->library()->floor) {
    if (file.document != nullptr) status.add_floor(file.path);
  }
  if (pipeline_->malformed() > 0) {
    status.add_warnings(absl::StrCat(pipeline_->malformed(), " malformed records were dropped"));
  }
  if (journal_ != nullptr && journal_->dropped() > 0) {
    status.add_warnings(absl::StrCat(journal_->dropped(), " entries were not taken by the system's journal"));
  }
  return status;
}

}  // namespace agentmon
