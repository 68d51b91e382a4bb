#include "daemon/resolver/opened_names.h"

#include <algorithm>

namespace agentmon {

void OpenedNames::Add(uint64_t cgroup_id, const Opened& opened) {
  absl::MutexLock lock(&mutex_);
  Session& session = sessions_[cgroup_id];
  if (session.size() >= kAddressesPerSession && session.count(opened.address) == 0) {
    const auto oldest = std::min_element(session.begin(), session.end(), [](const auto& a, const auto& b) {
      return a.second.used < b.second.used;
    });
    session.erase(oldest);
  }
  Address& address = session[opened.address];
  address.used = ++uses_;
  int64_t until_ns = opened.until_ns;
  const auto known = std::find_if(address.names.begin(), address.names.end(),
                                  [&opened](const Name& name) { return name.name == opened.name; });
  if (known != address.names.end()) {
    until_ns = std::max(until_ns, known->until_ns);
    address.names.erase(known);
  } else if (address.names.size() >= kNamesPerAddress) {
    address.names.erase(address.names.begin());
  }
  address.names.push_back({opened.name, until_ns});
}

std::vector<std::string> OpenedNames::NamesOf(uint64_t cgroup_id, const policy::Address& address,
                                              int64_t boot_ns) const {
  std::vector<std::string> names;
  absl::MutexLock lock(&mutex_);
  const auto session = sessions_.find(cgroup_id);
  if (session == sessions_.end()) return names;
  const auto it = session->second.find(address);
  if (it == session->second.end()) return names;
  for (auto name = it->second.names.rbegin(); name != it->second.names.rend(); ++name) {
    if (name->until_ns >= boot_ns) names.push_back(name->name);
  }
  return names;
}

void OpenedNames::Remove(uint64_t cgroup_id) {
  absl::MutexLock lock(&mutex_);
  sessions_.erase(cgroup_id);
}

}  // namespace agentmon
