// From a destination to the addresses that a session may reach it at.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/base/clock.h"
#include "daemon/proxy/destination_judge.h"
#include "daemon/proxy/proxy_session.h"
#include "daemon/resolver/host_addresses.h"
#include "daemon/resolver/hosts_file.h"
#include "daemon/resolver/upstream.h"

namespace agentmon {

struct Judged {
  std::string address;  // empty: the name was judged
  v1::Judgement judgement;
};
struct Route {
  std::vector<std::pair<policy::Address, v1::Judgement>> open;  // IPv4 first, none twice
  std::vector<Judged> denied;
  std::string failure;  // when neither is there: why
};

// The ports of all proxies of a daemon: nobody goes through one to another.
class ProxyPorts {
 public:
  void Add(uint16_t port);
  void Remove(uint16_t port);
  // Any thread.
  bool Has(const policy::Address& address, uint16_t port) const;

 private:
  mutable absl::Mutex mutex_;
  std::set<uint16_t> ports_ ABSL_GUARDED_BY(mutex_);
};

// The loop's thread.
class Router {
 public:
  using Done = std::function<void(Route)>;
  Router(PollLoop& loop, const Clock& clock, const ProxyPorts& ports, Upstream::Options upstream,
         std::string hosts_file)
      : clock_(clock),
        ports_(ports),
        upstream_(loop, std::move(upstream)),
        hosts_(std::move(hosts_file)),
        own_(clock) {}

  // Completes once, at once or later. A name is asked for once; what it leads to is judged by the policy of
  // that moment.
  void Find(const std::shared_ptr<ProxySession>& session, const Destination& destination, Done done);

 private:
  struct Search;
  void Ask(const std::shared_ptr<Search>& search, uint16_t type);
  void Finish(const std::shared_ptr<Search>& search);
  void Judge(const policy::Snapshot& snapshot, const Destination& destination,
             const std::vector<policy::Address>& addresses, bool trusted, Route& route);

  const Clock& clock_;
  const ProxyPorts& ports_;
  Upstream upstream_;
  HostsFile hosts_;
  HostAddresses own_;
};

}  // namespace agentmon
