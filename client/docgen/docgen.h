// Texts that are made from the definition of the command line.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "daemon/app/config_keys.h"

namespace agentmon {

// agentmon.1, in man(7). The date is "2026-01-31".
std::string ManPage(const CLI::App& app, const std::string& version, const std::string& date);
// agentmond.8, likewise, with the keys of its configuration.
std::string DaemonManPage(const CLI::App& app, const std::vector<ConfigKey>& keys, const std::string& version,
                          const std::string& date);
std::string BashCompletion(const CLI::App& app);
std::string ZshCompletion(const CLI::App& app);
std::string FishCompletion(const CLI::App& app);

}  // namespace agentmon
