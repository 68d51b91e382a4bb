// Asks the host's own servers.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "daemon/resolver/dns_message.h"
#include "daemon/resolver/poll_loop.h"

namespace agentmon {

// The loop's thread. c-ares does retries, TCP for what is cut, and EDNS where a server speaks it. Each
// question has a channel of its own: a source port and an id of its own, and resolv.conf as it is at that
// moment.
class Upstream {
 public:
  struct Options {
    std::string servers;  // "192.0.2.1:53,[::1]:5353"; empty = those of resolv.conf
    absl::Duration server_timeout = absl::Seconds(2);
    int tries = 2;
    absl::Duration total_timeout = absl::Seconds(8);
  };
  using Done = std::function<void(absl::StatusOr<DnsAnswer>)>;

  Upstream(PollLoop& loop, Options options);
  ~Upstream();  // questions that are open are not answered any more

  // Completes once, later, on the loop.
  void Ask(const DnsQuestion& question, Done done);
  size_t in_flight() const { return flights_.size(); }

  // Whether these are addresses of servers, in the form of Options::servers.
  static absl::Status CheckServers(const std::string& servers);

 private:
  class Flight;
  void Land(uint64_t number);

  PollLoop& loop_;
  const Options options_;
  std::map<uint64_t, std::unique_ptr<Flight>> flights_;
  uint64_t next_ = 1;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace agentmon
