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
      {"default_policy", "default", "The policy of sessions that name none"},
      {"floor_dir", "/etc/agentmon/floor.d", "Policy files that every session is held to"},
      {"policies_dir", "/etc/agentmon/policies", "Policies by name, before the shipped ones"},
      {"client.fallback", "none",
       "Whether 'agentmon run --user' may use a daemon of the user's own on this host (user), or never "
       "(none)"},
      {"resolver.servers", "",
       "DNS servers that are asked for sessions, such as 192.0.2.1,[2001:db8::1]:5353; without it those of "
       "resolv.conf"},
      {"limits.sessions_per_uid", "1000", "Running sessions of one user"},
      {"limits.on_unavailable", "refuse",
       "A session whose policy has resource limits that this host cannot set is refused (refuse), or runs "
       "without them and says so (warn)"},
  };
  return keys;
}

}  // namespace agentmon
