#include "daemon/app/options.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdlib>

#include "common/base/status.h"
#include "common/base/version.h"

namespace agentmon {

Options ParseOptions(int argc, char** argv) {
  Options o;
  CLI::App app(
      "The agentmon daemon: records what AI coding agents do in their sessions.\n"
      "Runs in the foreground; SIGTERM stops it (sessions go on), SIGHUP reloads its configuration.",
      "agentmond");
  app.set_version_flag("--version", std::string("agentmond ") + kVersion);
  auto* config = app.add_option("--config", o.config_path, "Configuration file")
                     ->type_name("FILE")
                     ->capture_default_str();
  app.add_option("--state-dir", o.state_dir, "Where the event store lives (default /var/lib/agentmon)")
      ->type_name("DIR");
  app.add_option("--runtime-dir", o.runtime_dir, "Sockets and session files (default /run/agentmon)")
      ->type_name("DIR");
  app.add_option("--socket", o.socket, "The API's socket (default RUNTIME-DIR/agentmond.sock)")
      ->type_name("PATH");
  app.add_option("--log-level", o.log_level, "error, warning, info or debug (default info)")
      ->type_name("LEVEL");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    std::exit(app.exit(e) == 0 ? 0 : 2);
  }
  o.config_given = config->count() > 0;
  return o;
}

absl::StatusOr<Config> EffectiveConfig(const Options& options) {
  Config config;
  if (options.config_given || ::access(options.config_path.c_str(), F_OK) == 0) {
    ASSIGN_OR_RETURN(config, LoadConfig(options.config_path));
  }
  std::string overrides;
  const auto add = [&](const char* key, const std::string& value) {
    if (!value.empty()) overrides += std::string(key) + ": '" + value + "'\n";
  };
  add("state_dir", options.state_dir);
  add("runtime_dir", options.runtime_dir);
  add("socket", options.socket);
  add("log_level", options.log_level);
  // The same checks as for the file: only what is given here replaces something.
  ASSIGN_OR_RETURN(const Config given, ParseConfig(overrides, "command line"));
  if (!options.state_dir.empty()) config.state_dir = given.state_dir;
  if (!options.runtime_dir.empty()) config.runtime_dir = given.runtime_dir;
  if (!options.socket.empty()) config.socket = given.socket;
  if (!options.log_level.empty()) config.log_level = given.log_level;
  return config;
}

}  // namespace agentmon
