// agentmon-docgen DIRECTORY DATE: writes man/ and completion/ there.
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "client/command/cli.h"
#include "client/docgen/docgen.h"
#include "daemon/app/config_keys.h"
#include "daemon/app/options.h"

int main(int argc, char** argv) {
  if (argc != 3) {
    fprintf(stderr, "usage: agentmon-docgen DIRECTORY YYYY-MM-DD\n");
    return 2;
  }
  agentmon::Cli cli;
  const std::unique_ptr<CLI::App> app = agentmon::MakeApp(cli);
  agentmon::Options daemon;
  const std::filesystem::path directory = argv[1];
  const std::pair<const char*, std::string> files[] = {
      {"man/agentmon.1", agentmon::ManPage(*app, AGENTMON_VERSION, argv[2])},
      {"man/agentmond.8", agentmon::DaemonManPage(*agentmon::MakeDaemonApp(daemon), agentmon::ConfigKeys(),
                                                  AGENTMON_VERSION, argv[2])},
      {"completion/agentmon.bash", agentmon::BashCompletion(*app)},
      {"completion/_agentmon", agentmon::ZshCompletion(*app)},
      {"completion/agentmon.fish", agentmon::FishCompletion(*app)},
  };
  for (const auto& [name, text] : files) {
    const std::filesystem::path path = directory / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream out(path, std::ios::binary | std::ios::trunc);
    out << text;
    out.close();
    if (out.fail()) {
      fprintf(stderr, "agentmon-docgen: cannot write %s\n", path.c_str());
      return 1;
    }
  }
}
