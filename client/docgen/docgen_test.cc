#include "client/docgen/docgen.h"

#include <catch2/catch.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "client/command/cli.h"
#include "daemon/app/config_keys.h"
#include "daemon/app/options.h"

namespace agentmon {
namespace {

template <typename Visit>
void ForEachVerb(const CLI::App& app, const Visit& visit) {
  visit(app);
  for (const CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; }))
    ForEachVerb(*verb, visit);
}

}  // namespace

TEST_CASE("every verb and option is in the manual page and in the completions") {
  Cli cli;
  const auto app = MakeApp(cli);
  const std::string man = ManPage(*app, "1.2", "2026-01-31");
  const std::string bash = BashCompletion(*app), zsh = ZshCompletion(*app), fish = FishCompletion(*app);
  int options = 0;
  ForEachVerb(*app, [&](const CLI::App& verb) {
    CHECK(absl::StrContains(bash, absl::StrCat("'", FullName(verb), "')")));
    CHECK(absl::StrContains(fish, absl::StrCat("'__agentmon_at ", FullName(verb), "'")));
    for (const CLI::Option* option : verb.get_options()) {
      for (const std::string& name : option->get_lnames()) {
        ++options;
        CAPTURE(name);
        CHECK(absl::StrContains(man, absl::StrCat("\\-\\-", absl::StrReplaceAll(name, {{"-", "\\-"}}))));
        CHECK(absl::StrContains(bash, absl::StrCat("--", name)));
        CHECK(absl::StrContains(zsh, absl::StrCat("--", name, "[")));
        CHECK(absl::StrContains(fish, absl::StrCat("-l ", name)));
      }
    }
  });
  CHECK(options > 50);
}

TEST_CASE("every option of the daemon and every key of its configuration is in its manual page") {
  Options options;
  const auto app = MakeDaemonApp(options);
  const std::string man = DaemonManPage(*app, ConfigKeys(), "1.2", "2026-01-31");
  CHECK(absl::StartsWith(man, ".\\\" Made by"));
  for (const CLI::Option* option : app->get_options()) {
    for (const std::string& name : option->get_lnames()) {
      CAPTURE(name);
      CHECK(absl::StrContains(man, absl::StrCat("\\-\\-", absl::StrReplaceAll(name, {{"-", "\\-"}}))));
    }
  }
  CHECK(ConfigKeys().size() > 5);
  for (const ConfigKey& key : ConfigKeys()) {
    CHECK(absl::StrContains(man, absl::StrCat(".B ", key.name, "\n")));
    CHECK(absl::StrContains(man, absl::StrReplaceAll(key.default_value, {{"-", "\\-"}})));
  }
}

TEST_CASE("choices are offered as values") {
  Cli cli;
  const auto app = MakeApp(cli);
  CHECK(absl::StrContains(BashCompletion(*app), "--format) COMPREPLY=($(compgen -W 'table json csv'"));
  CHECK(absl::StrContains(ZshCompletion(*app), ":value:(table json csv)"));
  CHECK(absl::StrContains(FishCompletion(*app), "-l format -x -a 'table json csv'"));
  CHECK(absl::StrContains(BashCompletion(*app), "unix_connect"));
}

}  // namespace agentmon
