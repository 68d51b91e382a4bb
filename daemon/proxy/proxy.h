// The proxies of sessions whose connections the kernel does not judge: docs/decisions/0063.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/base/clock.h"
#include "common/kernel/socket_lookup.h"
#include "daemon/event/event.h"
#include "daemon/proxy/proxy_client.h"
#include "daemon/proxy/proxy_door.h"
#include "daemon/proxy/proxy_session.h"
#include "daemon/proxy/router.h"

namespace agentmon {

// One thread for all sessions. Core thread, unless a method says otherwise; nothing here waits for a peer.
class Proxy {
 public:
  struct Options {
    Upstream::Options upstream;
    std::string hosts_file = "/etc/hosts";
    size_t connections_per_session = 128;  // further ones wait in the kernel, backlog of them
    size_t connections = 1024;             // in all; further ones are closed
  };
  // The proxy's thread; must not wait.
  using OnEvent =
      std::function<void(uint64_t cgroup_id, const ProxyPeer& peer, int64_t boot_ns, const Event& event)>;

  // The clock outlives it.
  static absl::StatusOr<std::unique_ptr<Proxy>> Start(const Clock& clock, OnEvent on_event, Options options);
  // Ends the thread, and all connections with it.
  ~Proxy();

  // A listener on 127.0.0.1 for this session. With `earlier`: at that door, as a daemon before this one had
  // it; fails when its port is somebody else's by now.
  absl::StatusOr<ProxyDoor> AddSession(ProxiedSession session, const std::optional<ProxyDoor>& earlier);
  // Its connections are closed.
  void RemoveSession(uint64_t cgroup_id);

 private:
  struct Served {
    std::shared_ptr<ProxySession> session;
    UniqueFd listener;
    bool accepts = false;
    std::map<uint64_t, std::shared_ptr<ProxyClient>> clients;  // by a number of our own
  };

  Proxy(const Clock& clock, OnEvent on_event, Options options, std::unique_ptr<PollLoop> loop,
        SocketLookup lookup);
  void Serve(const std::shared_ptr<ProxySession>& session, UniqueFd listener);
  void Accept(uint64_t cgroup_id, bool accepts);
  void OnConnections(uint64_t cgroup_id);
  void Begin(uint64_t cgroup_id, Served& served, UniqueFd fd, const ProxyPeer& peer);
  void OnEnd(uint64_t cgroup_id, uint64_t number);
  std::optional<ProxyPeer> Identify(const ProxySession& session, int fd);

  const Clock& clock_;
  const OnEvent on_event_;
  const Options options_;
  absl::Mutex mutex_;
  std::set<uint64_t> known_ ABSL_GUARDED_BY(mutex_);  // cgroup ids of the sessions
  ProxyPorts ports_;
  // The thread's, from here on.
  const std::unique_ptr<PollLoop> loop_;
  SocketLookup lookup_;
  Router router_;
  std::map<uint64_t, Served> sessions_;
  size_t connections_ = 0;
  uint64_t next_number_ = 1;
  std::thread thread_;
};

}  // namespace agentmon
