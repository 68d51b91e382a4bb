// The DNS resolver of sessions: answers what the policy allows to be asked, and opens what it answers.
// docs/resolver.md.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "daemon/resolver/dns_listener.h"
#include "daemon/resolver/question_server.h"

namespace agentmon {

// One thread for all sessions. Core thread, unless a method says otherwise; nothing here waits for a server.
class Resolver {
 public:
  struct Options {
    Upstream::Options upstream;
    QuestionServer::Options questions;
    std::string hosts_file = "/etc/hosts";
  };

  // The host and the clock outlive the resolver.
  static absl::StatusOr<std::unique_ptr<Resolver>> Start(const Clock& clock, ResolverHost& host,
                                                         Options options);
  // Ends the thread; open questions are not answered any more.
  ~Resolver();

  // From now on questions at these ports are this session's. `policy` is asked on the resolver's thread.
  absl::StatusOr<DnsPorts> AddSession(uint64_t cgroup_id, SnapshotSource policy);
  void RemoveSession(uint64_t cgroup_id);

  // Names whose answers have opened this address to the session and hold at that time, the newest first.
  // Any thread.
  std::vector<std::string> NamesOf(uint64_t cgroup_id, const policy::Address& address,
                                   int64_t boot_ns) const {
    return opened_.NamesOf(cgroup_id, address, boot_ns);
  }

 private:
  struct Served {
    std::shared_ptr<DnsSession> session;
    std::unique_ptr<DnsListener> listener;
  };

  Resolver(const Clock& clock, ResolverHost& host, Options options, std::unique_ptr<PollLoop> loop);
  void Serve(uint64_t cgroup_id, SnapshotSource policy, std::unique_ptr<DnsListener> listener);

  ResolverHost& host_;
  OpenedNames opened_;
  // The thread's, from here on.
  const std::unique_ptr<PollLoop> loop_;
  Upstream upstream_;
  HostsFile hosts_;
  QuestionServer server_;
  size_t tcp_clients_ = 0;
  std::map<uint64_t, Served> sessions_;
  std::thread thread_;
};

}  // namespace agentmon
