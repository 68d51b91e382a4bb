// The daemon, put together. Owns everything and the loop.
#pragma once

#include <grpcpp/impl/codegen/service_type.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/base/worker_pool.h"
#include "daemon/app/canary_sockets.h"
#include "daemon/app/config.h"
#include "daemon/app/event_loop.h"
#include "daemon/app/observation_set.h"
#include "daemon/app/options.h"
#include "daemon/app/pipeline.h"
#include "daemon/app/service_watchdog.h"
#include "daemon/journal/journal_sink.h"
#include "daemon/policy/policies.h"
#include "daemon/policy/policy_watcher.h"
#include "daemon/rpc/debug_service.h"
#include "daemon/rpc/server.h"
#include "daemon/rpc/service.h"
#include "daemon/session/session_manager.h"
#include "daemon/store/event_store.h"
#include "daemon/stream/stream_hub.h"

namespace agentmon {

class App {
 public:
  // Takes the locks, opens the store, starts the probes, finds earlier sessions, listens. Fails with one
  // line that says what to do.
  // `journal` is null where the system's journal does not take our standard error; it outlives the app.
  static absl::StatusOr<std::unique_ptr<App>> Create(const Options& options, Config config,
                                                     JournalSocket* journal);
  ~App();
  // Until SIGTERM or SIGINT.
  absl::Status Run();

 private:
  App(Options options, Config config, JournalSocket* journal)
      : options_(std::move(options)), config_(std::move(config)), journal_(journal) {}
  absl::Status OpenDirectories();
  absl::Status OpenSocket();
  static std::string MakeCanary(const std::string& runtime_dir, absl::string_view name);
  UnixCanaries MakeCanarySockets();
  absl::Status MakeCgroups();
  absl::Status OpenStore();
  absl::Status StartSessions();
  absl::Status StartServer();
  DebugService::Plans NetworkPlans();
  absl::Status WatchSignals();
  absl::Status WatchPolicies();
  bool Judge(Decoded* record);
  std::function<void(uint64_t)> ListenerGone();
  void Reload();
  void StartWatchdog();
  v1::StatusResponse Status() const;

  const Options options_;
  Config config_;
  JournalSocket* const journal_;
  SystemClock clock_;
  absl::Time started_ = clock_.Wall();
  std::optional<StateLock> lock_;
  UniqueFd listener_;                     // until the server has it
  bool socket_is_passed_ = false;         // then it stays when we go
  std::unique_ptr<HolderClient> holder_;  // until the observation has it
  std::optional<CanarySockets> canary_sockets_;
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<StreamHub> hub_;
  std::atomic<StreamHub*> hub_for_store_ = nullptr;  // set once the store, which feeds it, is open
  std::unique_ptr<EventStore> store_;
  ProcessTree tree_;
  std::unique_ptr<Policies> policies_;
  std::unique_ptr<PolicyWatcher> policy_watcher_;
  std::unique_ptr<SessionCgroups> cgroups_;
  std::unique_ptr<ListenerSessions> listeners_;  // of a daemon that is not root's; else null
  std::unique_ptr<HostLimits> host_limits_;
  std::unique_ptr<ResourceKeeper> resources_;
  std::unique_ptr<SystemdScopes> scopes_;
  std::unique_ptr<ObservationSet> observation_;
  std::unique_ptr<WorkerPool> workers_;
  std::unique_ptr<SessionManager> sessions_;
  std::unique_ptr<JournalSink> journal_sink_;
  std::unique_ptr<Pipeline> pipeline_;
  std::unique_ptr<Peers> peers_;
  std::unique_ptr<RpcDeps> rpc_;
  std::vector<std::unique_ptr<grpc::Service>> services_;
  std::unique_ptr<RpcServer> server_;
  std::unique_ptr<ServiceWatchdog> watchdog_;
  std::string reload_error_;
};

}  // namespace agentmon
