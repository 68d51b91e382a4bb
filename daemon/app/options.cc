#include "daemon/app/options.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/base/status.h"
#include "common/base/version.h"
#include "common/cli/usage_error.h"
#include "common/cli/value_checks.h"
#include "daemon/app/user_places.h"

namespace agentmon {

namespace {

void AbsolutePath(CLI::Option* option) {
  option->check([](const std::string& value) {
    return !value.empty() && value[0] == '/' ? std::string()
                                             : absl::StrCat("'", value, "' is not an absolute path");
  });
}

}  // namespace

std::unique_ptr<CLI::App> MakeDaemonApp(Options& o) {
  auto app = std::make_unique<CLI::App>(
      "The agentmon daemon: records what AI coding agents do in their sessions. It needs root, or --user for "
      "less, and runs in the foreground.",
      "agentmond");
  app->set_help_flag("-h,--help", "Show this help");
  app->set_version_flag("--version", std::string("agentmond ") + kVersion, "Show the version");
  app->add_option("--config", o.config_path,
                  std::string("Configuration file; default ") + kDefaultConfigPath + ", which need not exist")
      ->type_name("FILE");
  app->add_flag("--user", o.user,
                "Run as an ordinary user, for this user alone: no BPF, no fanotify, no limits; state in "
                "$XDG_STATE_HOME/agentmon, socket in $XDG_RUNTIME_DIR/agentmon, configuration in "
                "$XDG_CONFIG_HOME/agentmon/agentmond.yaml");
  AbsolutePath(
      app->add_option("--state-dir", o.state_dir, "Where the event store lives; default /var/lib/agentmon")
          ->type_name("DIR"));
  AbsolutePath(
      app->add_option("--runtime-dir", o.runtime_dir, "Socket and session files; default /run/agentmon")
          ->type_name("DIR"));
  AbsolutePath(
      app->add_option("--socket", o.socket, "Where clients connect; default RUNTIME-DIR/agentmond.sock")
          ->type_name("PATH"));
  OneOf(app->add_option("--log-level", o.log_level, "How much is logged; default info"),
        "error|warning|info|debug");
  app->footer("SIGTERM ends it, and sessions and their agents go on. SIGHUP reads the configuration again.");
  return app;
}

Options ParseOptions(int argc, char** argv) {
  Options o;
  const std::unique_ptr<CLI::App> app = MakeDaemonApp(o);
  try {
    app->parse(argc, argv);
  } catch (const CLI::Success& answer) {  // --help, --version
    std::exit(app->exit(answer));
  } catch (const CLI::ParseError& error) {
    const std::string text = UsageErrorText(*app, error, "agentmond takes options only");
    fprintf(stderr, "agentmond: %s\n", text.c_str());
    std::exit(2);
  }
  o.config_given = app->get_option("--config")->count() > 0;
  return o;
}

namespace {

// What every session is held to is the administrator's to say. A file of theirs that cannot be read is no
// reason to go on without it.
absl::StatusOr<Config> UserConfig(const Options& options) {
  const UserPlaces places = FindUserPlaces();
  Config config;
  config.state_dir = places.state_dir;
  config.runtime_dir = places.runtime_dir;
  if (::access(kDefaultConfigPath, F_OK) == 0) {
    ASSIGN_OR_RETURN(const Config system, LoadConfig(kDefaultConfigPath));
    config.policies = system.policies;
  }
  const std::string own = options.config_given ? options.config_path : places.config_path;
  if (!options.config_given && (own.empty() || ::access(own.c_str(), F_OK) != 0)) return config;
  return LoadUserConfig(own, config);
}

}  // namespace

absl::StatusOr<Config> EffectiveConfig(const Options& options) {
  Config config;
  if (options.user) {
    ASSIGN_OR_RETURN(config, UserConfig(options));
  } else if (options.config_given || ::access(options.config_path.c_str(), F_OK) == 0) {
    ASSIGN_OR_RETURN(config, LoadConfig(options.config_path));
  }
  std::string overrides;
  const auto add = [&](const char* key, const std::string& value) {
    if (value.empty()) return;
    absl::StrAppend(&overrides, key, ": '", absl::StrReplaceAll(value, {{"'", "''"}}), "'\n");
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
  if (config.runtime_dir.empty())
    return absl::FailedPreconditionError("XDG_RUNTIME_DIR is not set: give --runtime-dir");
  if (config.state_dir.empty())
    return absl::FailedPreconditionError("neither XDG_STATE_HOME nor HOME is set: give --state-dir");
  return config;
}

}  // namespace agentmon
