// /etc/agentmon/agentmond.yaml. Strict: an unknown key, a wrong type or a value out of range is an error
// with file:line. Keys: docs/operations.md.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/log.h"
#include "daemon/policy/policy_library.h"

namespace agentmon {

struct Config {
  std::string state_dir = "/var/lib/agentmon";
  std::string runtime_dir = "/run/agentmon";
  std::string socket;  // default: RUNTIME_DIR/agentmond.sock
  LogLevel log_level = LogLevel::kInfo;
  absl::Duration max_age = absl::Hours(24 * 30);
  uint64_t max_size_bytes = uint64_t{2} << 30;
  std::string admin_group;  // empty: root only
  size_t sessions_per_uid = 1000;
  bool refuse_missing_limits = true;  // limits.on_unavailable: refuse
  PolicyPlaces policies;
  std::string dns_servers;  // empty: those of resolv.conf

  std::string socket_path() const { return socket.empty() ? runtime_dir + "/agentmond.sock" : socket; }
};

inline constexpr char kDefaultConfigPath[] = "/etc/agentmon/agentmond.yaml";

// `name` is what errors call the file. All errors at once, one a line: "file:line: what".
absl::StatusOr<Config> ParseConfig(const std::string& text, const std::string& name);
// A user's own file over `defaults`; keys that are the administrator's are errors in it.
absl::StatusOr<Config> LoadUserConfig(const std::string& path, const Config& defaults);
// Reads a file of root's that nobody else may write; refuses others.
absl::StatusOr<Config> LoadConfig(const std::string& path);

}  // namespace agentmon
