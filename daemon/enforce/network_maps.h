// The maps of the network programs: room in them, and what is written in which order.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "bpf/network_abi.h"
#include "common/base/unique_fd.h"
#include "daemon/enforce/network_rules.h"

namespace agentmon {

// Of the loaded programs; borrowed.
struct NetworkMapFds {
  int slots = -1, sessions = -1, rules = -1, prefixes = -1, opened = -1, opened_lists = -1, redirected = -1;
};

// Not thread-safe. What a call returns takes its room back when it is destroyed: not before every program
// that may have looked at it has ended.
class NetworkMaps : public std::enable_shared_from_this<NetworkMaps> {
 public:
  static absl::StatusOr<std::shared_ptr<NetworkMaps>> Create(const NetworkMapFds& fds);
  ~NetworkMaps();

  // A run of rules.
  class Run {
   public:
    Run(std::shared_ptr<NetworkMaps> maps, am_net_list list) : maps_(std::move(maps)), list_(list) {}
    ~Run();
    const am_net_list& list() const { return list_; }

   private:
    const std::shared_ptr<NetworkMaps> maps_;
    const am_net_list list_;
  };
  // A policy: its rules, and its prefixes, which lead to them.
  class Policy {
   public:
    Policy(std::shared_ptr<NetworkMaps> maps, uint32_t number) : maps_(std::move(maps)), number_(number) {}
    ~Policy();
    uint32_t number() const { return number_; }

   private:
    friend class NetworkMaps;
    const std::shared_ptr<NetworkMaps> maps_;
    const uint32_t number_;
    std::shared_ptr<Run> run_;
    std::vector<am_net_key> keys_;
  };
  // An address that names have opened: found by its key from Create to Close, with the list of the moment.
  class Opened {
   public:
    Opened(std::shared_ptr<NetworkMaps> maps, am_net_opened_key key, uint32_t slot)
        : maps_(std::move(maps)), key_(key), slot_(slot) {}
    ~Opened();
    // In one step; returns what was there before, which programs may still look at.
    std::shared_ptr<Run> Switch(std::shared_ptr<Run> run);
    void Close();

   private:
    friend class NetworkMaps;
    const std::shared_ptr<NetworkMaps> maps_;
    const am_net_opened_key key_;
    const uint32_t slot_;
    std::shared_ptr<Run> run_;
  };

  // ResourceExhausted when there is no room; nothing is left then.
  absl::StatusOr<std::shared_ptr<Policy>> Write(const NetworkRules& rules);
  absl::StatusOr<std::shared_ptr<Run>> WriteRun(uint32_t policy, std::vector<am_net_rule> rules);
  absl::StatusOr<std::shared_ptr<Opened>> Open(const am_net_opened_key& key, std::shared_ptr<Run> run);

  // The session's place, which programs find with its policy in it.
  absl::StatusOr<uint32_t> AddSession(uint64_t cgroup_id, uint32_t policy, uint32_t flags);
  void RemoveSession(uint64_t cgroup_id, uint32_t slot);
  // In one step.
  void SetPolicy(uint32_t slot, uint32_t policy, uint32_t flags);
  // ports 0: nowhere
  void SetResolver(uint32_t slot, const uint8_t* v4, uint16_t port4, const uint8_t* v6, uint16_t port6);
  // False when there is none.
  bool FindRedirected(uint64_t cookie, am_net_redirected* out) const;

  // Programs that outlive the daemon go on with what is in the maps: nothing is taken back any more.
  void LeaveAsIs() { leave_ = true; }

  // For tests: rules that are in use.
  size_t rules_in_use() const;

 private:
  NetworkMaps() = default;
  absl::StatusOr<am_net_list> Allocate(uint32_t count);
  void Free(const am_net_list& list);

  UniqueFd slots_, rules_, prefixes_, opened_, redirected_;
  am_net_session* sessions_ = nullptr;  // mapped
  am_net_list* lists_ = nullptr;        // of opened addresses, mapped
  uint32_t next_policy_ = 1;
  bool leave_ = false;
  std::map<uint32_t, uint32_t> free_rules_;  // first -> count
  std::vector<uint32_t> free_sessions_, free_opened_;
};

}  // namespace agentmon
