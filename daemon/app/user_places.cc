#include "daemon/app/user_places.h"

#include <cstdlib>

#include "absl/strings/str_cat.h"

namespace agentmon {
namespace {

// A relative one is to be ignored, the specification says.
std::string Absolute(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && value[0] == '/' ? value : "";
}

std::string Below(const char* variable, const char* below_home, const char* rest) {
  std::string base = Absolute(variable);
  const std::string home = Absolute("HOME");
  if (base.empty() && below_home != nullptr && !home.empty()) base = absl::StrCat(home, "/", below_home);
  return base.empty() ? "" : absl::StrCat(base, "/", rest);
}

}  // namespace

UserPlaces FindUserPlaces() {
  return {Below("XDG_RUNTIME_DIR", nullptr, "agentmon"), Below("XDG_STATE_HOME", ".local/state", "agentmon"),
          Below("XDG_CONFIG_HOME", ".config", "agentmon/agentmond.yaml")};
}

}  // namespace agentmon
