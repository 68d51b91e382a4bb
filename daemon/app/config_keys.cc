#include "daemon/app/config_keys.h"

namespace agentmon {

const std::vector<ConfigKey>& ConfigKeys() {
  static const std::vector<ConfigKey>& keys = *new std::vector<ConfigKey>{
      {"state_dir", "/var/lib/agentmon", "Where the event store lives"},
      {"runtime_dir", "/run/agentmon", "The socket, and what the next daemon must know of running sessions"},
      {"socket", "/run/agentmon/agentmond.sock",
       "Where clients connect; in the runtime directory by default"},
      {"log_level", "info", "One of error, warning, info, debug"},
      {"retention.max_age", "30d", "Older events are removed; at least 1m"},
      {"retention.max_size", "2G", "The oldest events are removed beyond it; at least 16M"},
      {"admin_group", "", "Members see and stop all sessions; without it root alone does"},
      {"limits.sessions_per_uid", "1000", "Running sessions of one user"},
  };
  return keys;
}

}  // namespace agentmon
