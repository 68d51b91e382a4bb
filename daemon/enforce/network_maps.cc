#include "daemon/enforce/network_maps.h"

#include <bpf/bpf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace agentmon {
namespace {

absl::StatusOr<UniqueFd> Keep(int fd, absl::string_view what) {
  UniqueFd own(fcntl(fd, F_DUPFD_CLOEXEC, 3));
  if (!own.valid()) return ErrnoStatus(errno, absl::StrCat("keep the map of ", what));
  return own;
}

template <typename T>
absl::StatusOr<T*> MapArray(int fd, size_t count, absl::string_view what) {
  void* memory = mmap(nullptr, count * sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) return ErrnoStatus(errno, absl::StrCat("map the array of ", what));
  return static_cast<T*>(memory);
}

absl::Status MapError(absl::string_view what) {
  if (errno == ENOSPC || errno == E2BIG || errno == ENOMEM)
    return absl::ResourceExhaustedError(absl::StrCat("no room for ", what, " in the kernel's maps"));
  return ErrnoStatus(errno, absl::StrCat("write ", what));
}

template <typename T>
void StoreWord(T* at, uint32_t low, uint32_t high) {
  // What the word leads to was written before; a program sees the old word or this one.
  __atomic_store_n(reinterpret_cast<uint64_t*>(at), uint64_t{high} << 32 | low, __ATOMIC_RELEASE);
}

am_net_key KeyOf(uint32_t policy, const policy::Prefix& prefix) {
  am_net_key key{};
  key.prefix_bits = 64 + static_cast<uint32_t>(prefix.length);
  key.policy = policy;
  key.family = prefix.address.v6 ? AF_INET6 : AF_INET;
  std::copy(prefix.address.bytes.begin(), prefix.address.bytes.end(), key.address);
  return key;
}

std::vector<uint32_t> AllFree(uint32_t count) {
  std::vector<uint32_t> free;
  for (uint32_t i = count; i > 0; --i) free.push_back(i - 1);
  return free;
}

}  // namespace

absl::StatusOr<std::shared_ptr<NetworkMaps>> NetworkMaps::Create(const NetworkMapFds& fds) {
  std::shared_ptr<NetworkMaps> maps(new NetworkMaps);
  ASSIGN_OR_RETURN(maps->slots_, Keep(fds.slots, "sessions"));
  ASSIGN_OR_RETURN(maps->rules_, Keep(fds.rules, "network rules"));
  ASSIGN_OR_RETURN(maps->prefixes_, Keep(fds.prefixes, "prefixes"));
  ASSIGN_OR_RETURN(maps->opened_, Keep(fds.opened, "opened addresses"));
  ASSIGN_OR_RETURN(maps->redirected_, Keep(fds.redirected, "redirected sockets"));
  ASSIGN_OR_RETURN(maps->sessions_, MapArray<am_net_session>(fds.sessions, AM_SESSIONS_MAX, "sessions"));
  ASSIGN_OR_RETURN(maps->lists_, MapArray<am_net_list>(fds.opened_lists, AM_NET_OPENED_MAX, "opened lists"));
  maps->free_rules_[0] = AM_NET_RULES_MAX;
  maps->free_sessions_ = AllFree(AM_SESSIONS_MAX);
  maps->free_opened_ = AllFree(AM_NET_OPENED_MAX);
  return maps;
}

NetworkMaps::~NetworkMaps() {
  if (sessions_ != nullptr) munmap(sessions_, AM_SESSIONS_MAX * sizeof(am_net_session));
  if (lists_ != nullptr) munmap(lists_, AM_NET_OPENED_MAX * sizeof(am_net_list));
}

absl::StatusOr<am_net_list> NetworkMaps::Allocate(uint32_t count) {
  for (auto it = free_rules_.begin(); it != free_rules_.end(); ++it) {
    const auto [first, room] = *it;
    if (room < count) continue;
    free_rules_.erase(it);
    if (room > count) free_rules_[first + count] = room - count;
    return am_net_list{first, count};
  }
  return absl::ResourceExhaustedError("no room for network rules in the kernel's maps");
}

void NetworkMaps::Free(const am_net_list& list) {
  const auto it = free_rules_.emplace(list.first, list.count).first;
  if (const auto next = std::next(it); next != free_rules_.end() && it->first + it->second == next->first) {
    it->second += next->second;
    free_rules_.erase(next);
  }
  if (it == free_rules_.begin()) return;
  if (const auto before = std::prev(it); before->first + before->second == it->first) {
    before->second += it->second;
    free_rules_.erase(it);
  }
}

size_t NetworkMaps::rules_in_use() const {
  size_t free = 0;
  for (const auto& [first, count] : free_rules_) free += count;
  return AM_NET_RULES_MAX - free;
}

NetworkMaps::Run::~Run() { maps_->Free(list_); }

absl::StatusOr<std::shared_ptr<NetworkMaps::Run>> NetworkMaps::WriteRun(uint32_t policy,
                                                                        std::vector<am_net_rule> rules) {
  ASSIGN_OR_RETURN(const am_net_list list, Allocate(static_cast<uint32_t>(rules.size())));
  auto run = std::make_shared<Run>(shared_from_this(), list);
  std::vector<uint32_t> indices(rules.size());
  for (size_t i = 0; i < rules.size(); ++i) {
    indices[i] = list.first + static_cast<uint32_t>(i);
    rules[i].policy = policy;
  }
  uint32_t count = list.count;
  if (bpf_map_update_batch(rules_.get(), indices.data(), rules.data(), &count, nullptr) != 0 ||
      count != list.count) {
    return MapError("network rules");
  }
  return run;
}

NetworkMaps::Policy::~Policy() {
  if (maps_->leave_) return;
  for (const am_net_key& key : keys_) bpf_map_delete_elem(maps_->prefixes_.get(), &key);
}

absl::StatusOr<std::shared_ptr<NetworkMaps::Policy>> NetworkMaps::Write(const NetworkRules& rules) {
  const auto policy = std::make_shared<Policy>(shared_from_this(), next_policy_++);
  ASSIGN_OR_RETURN(policy->run_, WriteRun(policy->number(), rules.rules));
  for (const auto* nodes : {&rules.v4, &rules.v6}) {
    for (const NetworkRules::Node& node : *nodes) {
      const am_net_key key = KeyOf(policy->number(), node.prefix);
      const am_net_list list{policy->run_->list().first + node.list.first, node.list.count};
      if (bpf_map_update_elem(prefixes_.get(), &key, &list, BPF_ANY) != 0) return MapError("prefixes");
      policy->keys_.push_back(key);
    }
  }
  return policy;
}

absl::StatusOr<std::shared_ptr<NetworkMaps::Opened>> NetworkMaps::Open(const am_net_opened_key& key,
                                                                       std::shared_ptr<Run> run) {
  if (free_opened_.empty()) return absl::ResourceExhaustedError("no room for another opened address");
  const uint32_t slot = free_opened_.back();
  StoreWord(&lists_[slot], run->list().first, run->list().count);
  if (bpf_map_update_elem(opened_.get(), &key, &slot, BPF_NOEXIST) != 0) return MapError("an opened address");
  free_opened_.pop_back();
  auto opened = std::make_shared<Opened>(shared_from_this(), key, slot);
  opened->run_ = std::move(run);
  return opened;
}

NetworkMaps::Opened::~Opened() { maps_->free_opened_.push_back(slot_); }

void NetworkMaps::Opened::Close() { bpf_map_delete_elem(maps_->opened_.get(), &key_); }

std::shared_ptr<NetworkMaps::Run> NetworkMaps::Opened::Switch(std::shared_ptr<Run> run) {
  StoreWord(&maps_->lists_[slot_], run->list().first, run->list().count);
  return std::exchange(run_, std::move(run));
}

absl::StatusOr<uint32_t> NetworkMaps::AddSession(uint64_t cgroup_id, uint32_t policy, uint32_t flags) {
  if (free_sessions_.empty()) return absl::ResourceExhaustedError("no room for another session");
  const uint32_t slot = free_sessions_.back();
  am_net_session& session = sessions_[slot];
  std::memset(&session, 0, sizeof(session));
  session.cgroup_id = cgroup_id;
  StoreWord(&session, policy, flags);
  if (bpf_map_update_elem(slots_.get(), &cgroup_id, &slot, BPF_NOEXIST) != 0) return MapError("a session");
  free_sessions_.pop_back();
  return slot;
}

// Its cgroup has no process left, so that nobody looks at its place any more.
void NetworkMaps::RemoveSession(uint64_t cgroup_id, uint32_t slot) {
  bpf_map_delete_elem(slots_.get(), &cgroup_id);
  free_sessions_.insert(free_sessions_.begin(), slot);  // as late as possible
}

void NetworkMaps::SetPolicy(uint32_t slot, uint32_t policy, uint32_t flags) {
  StoreWord(&sessions_[slot], policy, flags);
}

void NetworkMaps::SetResolver(uint32_t slot, const uint8_t* v4, uint16_t port4, const uint8_t* v6,
                              uint16_t port6) {
  am_net_session& session = sessions_[slot];
  __atomic_store_n(&session.port4, uint16_t{0}, __ATOMIC_SEQ_CST);
  __atomic_store_n(&session.port6, uint16_t{0}, __ATOMIC_SEQ_CST);
  std::memcpy(session.resolver4, v4, sizeof(session.resolver4));
  std::memcpy(session.resolver6, v6, sizeof(session.resolver6));
  __atomic_store_n(&session.port4, port4, __ATOMIC_RELEASE);
  __atomic_store_n(&session.port6, port6, __ATOMIC_RELEASE);
}

bool NetworkMaps::FindRedirected(uint64_t cookie, am_net_redirected* out) const {
  return bpf_map_lookup_elem(redirected_.get(), &cookie, out) == 0;
}

}  // namespace agentmon
