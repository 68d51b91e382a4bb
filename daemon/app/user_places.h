// Where a daemon that runs as an ordinary user keeps its things (XDG Base Directory Specification 0.8).
#pragma once

#include <string>

namespace agentmon {

// Empty where the environment does not say: XDG_RUNTIME_DIR has no default, the others need HOME.
struct UserPlaces {
  std::string runtime_dir;  // $XDG_RUNTIME_DIR/agentmon
  std::string state_dir;    // ${XDG_STATE_HOME:-~/.local/state}/agentmon
  std::string config_path;  // ${XDG_CONFIG_HOME:-~/.config}/agentmon/agentmond.yaml
};

UserPlaces FindUserPlaces();

}  // namespace agentmon
