// agentmond's command line, on top of its configuration file.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "daemon/app/config.h"

namespace agentmon {

struct Options {
  std::string config_path = kDefaultConfigPath;
  bool config_given = false;  // then the file must exist
  bool user = false;          // runs as an ordinary user, for that user alone
  std::string state_dir;      // each empty = as the configuration says
  std::string runtime_dir;
  std::string socket;
  std::string log_level;
};

// The definition alone, for the parser and the manual page. The options must outlive it.
std::unique_ptr<CLI::App> MakeDaemonApp(Options& options);

// Ends the process for --help, --version (status 0) and usage errors (status 2).
Options ParseOptions(int argc, char** argv);

// The file's values with the command line's over them. With `user`, the system's file says where policies
// lie, and the user's says everything else.
absl::StatusOr<Config> EffectiveConfig(const Options& options);

}  // namespace agentmon
