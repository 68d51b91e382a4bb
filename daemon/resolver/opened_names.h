// Which names have opened which addresses to a session.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/policy/address.h"

namespace agentmon {

// Thread-safe. Bounded for each session: the oldest are forgotten.
class OpenedNames {
 public:
  struct Opened {
    std::string name;
    policy::Address address;
    int64_t until_ns = 0;  // CLOCK_BOOTTIME
  };
  static constexpr size_t kAddressesPerSession = 4096;
  static constexpr size_t kNamesPerAddress = 8;

  void Add(uint64_t cgroup_id, const Opened& opened);
  // That hold at this time, the newest first.
  std::vector<std::string> NamesOf(uint64_t cgroup_id, const policy::Address& address, int64_t boot_ns) const;
  void Remove(uint64_t cgroup_id);

 private:
  struct Name {
    std::string name;
    int64_t until_ns = 0;
  };
  struct Address {
    std::vector<Name> names;  // the newest last
    uint64_t used = 0;
  };
  using Session = std::map<policy::Address, Address>;

  mutable absl::Mutex mutex_;
  std::map<uint64_t, Session> sessions_ ABSL_GUARDED_BY(mutex_);
  uint64_t uses_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace agentmon
