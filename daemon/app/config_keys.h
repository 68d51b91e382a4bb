// The keys of agentmond.yaml as its manual page lists them.
#pragma once

#include <string>
#include <vector>

namespace agentmon {

struct ConfigKey {
  std::string name;           // "retention.max_age"
  std::string default_value;  // as it is written; empty: there is none
  std::string meaning;        // one sentence without its full stop
};

const std::vector<ConfigKey>& ConfigKeys();

}  // namespace agentmon
