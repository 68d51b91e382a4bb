#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/command/cli.h"
#include "client/command/help.h"
#include "client/docgen/docgen.h"

namespace agentmon {
namespace {

// Text of our own as roff: '-' as a real minus, nothing read as a request.
std::string Roff(absl::string_view text) {
  std::string out = absl::StrReplaceAll(text, {{"\\", "\\e"},
                                               {"-", "\\-"},
                                               {"'", "\\(aq"},
                                               {"`", "\\(ga"},
                                               {"^", "\\(ha"},
                                               {"~", "\\(ti"},
                                               {"×", "\\(mu"},
                                               {"≥", "\\(>="}});
  return absl::StartsWith(out, ".") ? absl::StrCat("\\&", out) : out;
}

// The same in lines that an editor shows whole.
std::string Filled(absl::string_view text) {
  return absl::StrJoin(WrapWords(text, 70), "\n",
                       [](std::string* out, const std::string& line) { absl::StrAppend(out, Roff(line)); });
}

std::string Paragraphs(const std::string& footer) {
  std::string out;
  bool in_examples = false;
  for (const absl::string_view line : absl::StrSplit(footer, '\n')) {
    const bool is_example = absl::StartsWith(line, "  ");
    if (is_example != in_examples) absl::StrAppend(&out, is_example ? ".PP\n.EX\n" : ".EE\n");
    in_examples = is_example;
    if (line.empty() || line == "Examples:") continue;
    absl::StrAppend(&out, is_example ? Roff(line.substr(2)) : absl::StrCat(".PP\n", Filled(line)), "\n");
  }
  return absl::StrCat(out, in_examples ? ".EE\n" : "");
}

// The examples at a footer's end, without a paragraph before them.
std::string Examples(const std::string& footer) {
  return std::string(absl::StripPrefix(Paragraphs(footer.substr(footer.find("Examples:"))), ".PP\n"));
}

bool IsCommon(const CLI::Option& option) {
  const std::string name = option.get_name(false, true);
  return absl::StrContains(name, "--help") || absl::StrContains(name, "--socket") ||
         absl::StrContains(name, "--color") || absl::StrContains(name, "--version");
}

std::string Options(const std::vector<const CLI::Option*>& options) {
  std::string out;
  for (const CLI::Option* option : options) {
    absl::StrAppend(&out, ".TP\n.B ", Roff(OptionSynopsis(*option)), "\n", Filled(option->get_description()),
                    ".\n");
  }
  return out;
}

// Those that every verb has, or those that only this one has.
std::string Options(const CLI::App& app, bool common) {
  return Options(
      app.get_options([common](const CLI::Option* option) { return IsCommon(*option) == common; }));
}

std::string Verb(const CLI::App& app) {
  std::string out = absl::StrCat(".SS \"", Roff(UsageLine(app)), "\"\n", Filled(app.get_description()), ".\n",
                                 Options(app, false), Paragraphs(app.get_footer()));
  for (const CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; }))
    absl::StrAppend(&out, Verb(*verb));
  return out;
}

constexpr char kRest[] = R"(.SH EXIT STATUS
.TP
.B 0
Done; the answer is yes.
.TP
.B 1
The answer is no: no such session, refused, a damaged store.
.TP
.B 2
Wrong usage.
.TP
.B 3
The daemon cannot be reached, or is not trusted.
.TP
.B 125
.B agentmon run
failed itself, and the agent was not started.
.TP
.B 126, 127
The agent's command cannot be executed, or was not found.
.PP
Else
.B agentmon run
exits as its agent does, and dies by the signal that killed it.
.SH ENVIRONMENT
.TP
.B AGENTMON_SOCKET
The daemon's socket, where
.B \-\-socket
is not given.
.TP
.B NO_COLOR
No colours, when it is set and not empty.
.SH FILES
.TP
.I /run/agentmon/agentmond.sock
The daemon's socket. It is used only when who listens there runs as root
or as the caller.
.SH SEE ALSO
.BR agentmond (8)
)";

constexpr char kDaemonRest[] = R"(.SH SIGNALS
.TP
.B SIGTERM, SIGINT
The daemon ends. Sessions and their agents go on without being recorded;
.B agentmon session stop \-\-all
ends them.
.TP
.B SIGHUP
The configuration is read again. One with an error changes nothing and is
named in the log.
.SH EXIT STATUS
.TP
.B 0
Ended by a signal, or answered
.B \-\-help
or
.BR \-\-version .
.TP
.B 1
It could not start or go on; the reason is on standard error.
.TP
.B 2
Wrong usage.
.SH FILES
.TP
.I /etc/agentmon/agentmond.yaml
The configuration.
.TP
.I /var/lib/agentmon/agentmon.db
Events and sessions.
.TP
.I /run/agentmon/agentmond.sock
Where clients connect. The kernel tells the daemon who calls.
.TP
.I $XDG_CONFIG_HOME/agentmon/agentmond.yaml, $XDG_STATE_HOME/agentmon, $XDG_RUNTIME_DIR/agentmon
The same with
.BR \-\-user ,
where ~/.config and ~/.local/state stand in for variables that are not set.
.SH SEE ALSO
.BR agentmon (1)
)";

std::string Key(const ConfigKey& key) {
  return absl::StrCat(
      ".TP\n.B ", Roff(key.name), "\n", Filled(key.meaning), ".\n",
      key.default_value.empty() ? "" : absl::StrCat("Default ", Roff(key.default_value), ".\n"));
}

}  // namespace

std::string DaemonManPage(const CLI::App& app, const std::vector<ConfigKey>& keys, const std::string& version,
                          const std::string& date) {
  std::string out = absl::StrCat(
      ".\\\" Made by agentmon\\-docgen.\n.TH AGENTMOND 8 \"", date, "\" \"agentmon ", version,
      "\" \"System Administration\"\n.SH NAME\nagentmond \\- the agentmon daemon\n.SH SYNOPSIS\n.B ",
      Roff(UsageLine(app)), "\n.SH DESCRIPTION\n", Filled(app.get_description()), "\n.SH OPTIONS\n",
      Options(app.get_options()), ".SH CONFIGURATION\n",
      Filled(
          "YAML, root's and writable by nobody else. An unknown key, a wrong type or a value out of range is "
          "an error, with which the daemon does not start. Options win over it. A key with a dot stands "
          "below its first part:"),
      "\n.PP\n.EX\nretention:\n  max_age: 14d\n.EE\n");
  for (const ConfigKey& key : keys) absl::StrAppend(&out, Key(key));
  return absl::StrCat(out, kDaemonRest);
}

std::string ManPage(const CLI::App& app, const std::string& version, const std::string& date) {
  std::string out = absl::StrCat(".\\\" Made by agentmon\\-docgen.\n.TH AGENTMON 1 \"", date,
                                 "\" \"agentmon ", version, "\" \"User Commands\"\n",
                                 ".SH NAME\nagentmon \\- record what AI coding agents do\n.SH SYNOPSIS\n");
  const std::vector<const CLI::App*> verbs = app.get_subcommands([](const CLI::App*) { return true; });
  for (const CLI::App* verb : verbs) {
    absl::StrAppend(&out, verb == verbs.front() ? "" : ".br\n", ".B ", Roff(UsageLine(*verb)), "\n");
  }
  absl::StrAppend(&out, ".SH DESCRIPTION\n",
                  "agentmon starts AI coding agents in sessions that the daemon\n.BR agentmond (8)\nrecords, "
                  "and shows what "
                  "they did: programs, files, network.\n.SH VERBS\n");
  for (const CLI::App* verb : verbs) absl::StrAppend(&out, Verb(*verb));
  absl::StrAppend(&out, ".SH COMMON OPTIONS\n", Options(app, true), kRest, ".SH EXAMPLES\n");
  const std::string& footer = app.get_footer();
  absl::StrAppend(&out, Examples(footer));
  return out;
}

}  // namespace agentmon
