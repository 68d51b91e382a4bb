// /etc/hosts, read again when it has changed.
#pragma once

#include <sys/stat.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "common/policy/address.h"

namespace agentmon {

// Addresses by name, lower case. Lines that are none are passed over, as libc does.
using HostTable = absl::flat_hash_map<std::string, std::vector<policy::Address>>;
HostTable ParseHosts(absl::string_view text);

// One thread. Looks at the file's inode and times at each question; reads at most 16 MiB of it.
class HostsFile {
 public:
  explicit HostsFile(std::string path) : path_(std::move(path)) {}
  // Null: the name is not there. Valid until the next call.
  const std::vector<policy::Address>* Find(const std::string& name);

 private:
  const std::string path_;
  std::optional<struct stat> read_;
  HostTable table_;
};

}  // namespace agentmon
