#include "daemon/resolver/resolver.h"

#include <pthread.h>

#include <utility>

#include "common/base/log.h"
#include "common/base/status.h"

namespace agentmon {

Resolver::Resolver(const Clock& clock, ResolverHost& host, Options options, std::unique_ptr<PollLoop> loop)
    : host_(host),
      loop_(std::move(loop)),
      upstream_(*loop_, options.upstream),
      hosts_(options.hosts_file),
      server_(QuestionServer::Deps{clock, upstream_, hosts_, opened_, host}, options.questions) {}

absl::StatusOr<std::unique_ptr<Resolver>> Resolver::Start(const Clock& clock, ResolverHost& host,
                                                          Options options) {
  ASSIGN_OR_RETURN(std::unique_ptr<PollLoop> loop, PollLoop::Create());
  std::unique_ptr<Resolver> resolver(new Resolver(clock, host, std::move(options), std::move(loop)));
  resolver->thread_ = std::thread([loop = resolver->loop_.get()] {
    ::pthread_setname_np(::pthread_self(), "resolver");
    loop->Run();
  });
  return resolver;
}

Resolver::~Resolver() {
  loop_->Quit();
  thread_.join();
}

absl::StatusOr<DnsPorts> Resolver::AddSession(uint64_t cgroup_id, SnapshotSource policy) {
  ASSIGN_OR_RETURN(std::unique_ptr<DnsListener> listener, DnsListener::Bind());
  const DnsPorts ports = listener->ports();
  // Tasks are copied; the listener is not.
  auto bound = std::make_shared<std::unique_ptr<DnsListener>>(std::move(listener));
  loop_->Post(
      [this, cgroup_id, policy = std::move(policy), bound] { Serve(cgroup_id, policy, std::move(*bound)); });
  return ports;
}

void Resolver::Serve(uint64_t cgroup_id, SnapshotSource policy, std::unique_ptr<DnsListener> listener) {
  auto session = std::make_shared<DnsSession>();
  session->cgroup_id = cgroup_id;
  session->policy = std::move(policy);
  const absl::Status served =
      listener->Serve({*loop_, tcp_clients_,
                       [this, cgroup_id](const DnsPath& path) { return host_.Identify(cgroup_id, path); },
                       [this, session](const DnsClient& client, int protocol,
                                       absl::Span<const uint8_t> message, const DnsReply& reply) {
                         server_.OnMessage(session, client, protocol, message, reply);
                       }});
  if (!served.ok()) LogError("names of a session cannot be looked up: ", served.message());
  sessions_[cgroup_id] = Served{std::move(session), std::move(listener)};
}

void Resolver::RemoveSession(uint64_t cgroup_id) {
  loop_->Post([this, cgroup_id] {
    const auto it = sessions_.find(cgroup_id);
    if (it == sessions_.end()) return;
    it->second.session->ended = true;
    sessions_.erase(it);
    opened_.Remove(cgroup_id);
  });
}

}  // namespace agentmon
