#include "client/command/cli.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/command/help.h"
#include "client/command/policy_verbs.h"
#include "client/exit_status.h"
#include "client/output/names.h"
#include "client/output/text.h"
#include "common/cli/usage_error.h"
#include "common/cli/value_checks.h"
#include "daemon/event/kinds.h"

namespace agentmon {
namespace {

void AddPid(CLI::App& app, int& pid, const std::string& description) {
  app.add_option("--pid", pid, description)->type_name("PID")->check([](const std::string& value) {
    const bool is_pid = !value.empty() && value.size() < 10 && value[0] != '0' &&
                        value.find_first_not_of("0123456789") == std::string::npos;
    return is_pid ? std::string() : absl::StrCat("'", value, "' is no process id");
  });
}

CLI::App* AddVerb(CLI::App& parent, Cli& cli, const std::string& name, const std::string& description,
                  std::function<int()> action) {
  CLI::App* verb = parent.add_subcommand(name, description);
  if (action != nullptr) cli.verbs.emplace_back(verb, std::move(action));
  return verb;
}

// An option that may be given again; each time it takes one value.
CLI::Option* AddRepeated(CLI::App* app, const std::string& name, std::vector<std::string>& values,
                         const std::string& description) {
  return app->add_option(name, values, description)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false);
}

// On every verb, so that they may stand anywhere before "--".
void AddCommonOptions(CLI::App& app, VerbContext& context, bool has_json) {
  if (has_json) app.add_flag("--json", context.json, "Print JSON");
  app.add_option("--socket", context.socket,
                 "Socket of the daemon; default AGENTMON_SOCKET, then "
                 "/run/agentmon/agentmond.sock")
      ->type_name("PATH");
  app.add_flag("--user", context.user,
               "The daemon of your own, 'agentmond --user', in place of the system's");
  OneOf(app.add_option("--color", context.color, "Colours; auto asks the terminal and NO_COLOR"),
        "auto|always|never");
}

void AddRunOptions(CLI::App* verb, RunOptions& run) {
  verb->add_option("--name", run.name, "Name of the session, free text")->type_name("NAME");
  verb->add_option("--workspace", run.workspace, "Directory that the agent works on; default the current one")
      ->type_name("DIR");
  AddRepeated(verb, "--label", run.labels, "Label of the session; may be given again")
      ->type_name("KEY=VALUE");
  AddPolicyOption(verb, run.policies);
  constexpr const char* kDestination = "NAME|ADDRESS|PREFIX[:PORT]";
  AddRepeated(verb, "--allow-net", run.network.allow,
              "Only these destinations, of those that the policy allows")
      ->type_name(kDestination);
  AddRepeated(verb, "--deny-net", run.network.deny, "Not these destinations; may be given again")
      ->type_name(kDestination);
  verb->add_flag("--deny-all", run.network.deny_all, "No destination but those of --allow-net");
  verb->add_option(
          "--keep-fd", run.keep_fds,
          "Descriptor that reaches the agent though it is a directory, device or socket; may be given "
          "again")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false)
      ->check(CLI::NonNegativeNumber)
      ->type_name("N");
  verb->add_flag("--allow-root", run.allow_root, "Run the agent even as root");
  verb->add_flag("--exec", run.exec, "Become the agent: no parent process, no line at the end");
  verb->add_flag("--quiet,-q", run.quiet, "No line at the end");
  verb->footer(
      "The agent keeps its terminal, process group, directory, and of environment and descriptors what the "
      "policy "
      "lets pass. agentmon passes "
      "on "
      "HUP and TERM (and stops the session 3 seconds later), and INT, QUIT, USR1 and USR2 that a process "
      "sends; it "
      "stops and continues with the agent, and ends as it ends: with its exit status, or by its signal. "
      "Failures of agentmon itself are status 125 with the reason on standard error; 126 and 127 say that "
      "the "
      "command is not executable or not found.\n\n"
      "Examples:\n"
      "  agentmon run -- claude\n"
      "  agentmon run --name fix-ci --label ticket=42 -- codex exec 'make the tests pass'");
}

void AddRun(CLI::App& app, Cli& cli) {
  AddRunOptions(AddVerb(app, cli, "run", "Run an agent in a new session that records what it does",
                        [&cli] { return Run(cli.context, cli.run); }),
                cli.run);
}

void AddAttachOptions(CLI::App* verb, Cli& cli) {
  AddPid(*verb, cli.attach.pid, "Process to take in, with all its descendants");
  verb->get_option("--pid")->required();
  verb->add_option("--name", cli.attach.name, "Name of the session, free text")->type_name("NAME");
  AddRepeated(verb, "--label", cli.attach.labels, "Label of the session; may be given again")
      ->type_name("KEY=VALUE");
  AddPolicyOption(verb, cli.attach.policies);
  verb->footer(
      "What the process did before is not known, and the sources that an agent sets up for itself at its "
      "start do not see it: 'agentmon session show' says which.\n\n"
      "Examples:\n"
      "  agentmon attach --pid \"$(pgrep -n claude)\"");
}

void AddAttach(CLI::App& app, Cli& cli) {
  AddAttachOptions(AddVerb(app, cli, "attach", "Record a process that already runs, and its descendants",
                           [&cli] { return Attach(cli.context, cli.attach); }),
                   cli);
}

void AddSession(CLI::App& app, Cli& cli) {
  CLI::App* session = AddVerb(app, cli, "session", "Start, list, show and stop sessions", nullptr);
  session->require_subcommand(1);
  session->footer(
      "A session is named by its id, by the beginning of its id (4 characters at least), or by its name.");
  AddRunOptions(AddVerb(*session, cli, "start", "The same as agentmon run",
                        [&cli] { return Run(cli.context, cli.run); }),
                cli.run);
  CLI::App* list = AddVerb(*session, cli, "list", "List the running sessions",
                           [&cli] { return SessionList(cli.context, cli.session); });
  list->add_flag("--all,-a", cli.session.all, "Also those that have ended");
  CLI::App* show = AddVerb(*session, cli, "show", "Show one session; the newest when none is named",
                           [&cli] { return SessionShow(cli.context, cli.session); });
  show->add_option("ID", cli.session.id, "Session")->type_name("ID");
  CLI::App* stop = AddVerb(*session, cli, "stop", "End all processes of a session",
                           [&cli] { return SessionStop(cli.context, cli.session); });
  stop->add_option("ID", cli.session.id, "Session")->type_name("ID");
  stop->add_flag("--all", cli.session.all, "Every session of yours");
  Seconds(stop->add_option("--grace", cli.session.grace,
                           "Time between SIGTERM and the kill; default 3, 0 kills at once")
              ->type_name("SECONDS"),
          0, 3600);
  AddSetPolicyOptions(AddVerb(*session, cli, "set-policy", "Give a running session another policy",
                              [&cli] { return SessionSetPolicy(cli.context, cli.session); }),
                      cli);
  AddAttachOptions(AddVerb(*session, cli, "attach", "The same as agentmon attach",
                           [&cli] { return Attach(cli.context, cli.attach); }),
                   cli);
}

void AddFilterOptions(CLI::App* verb, TimelineOptions& timeline) {
  verb->add_option(
          "--session", timeline.session,
          "Session by id, beginning of its id, or name, or 'all'; default all, for --tree the newest")
      ->type_name("ID");
  verb->add_option("--since", timeline.since,
                   "From this time on: 14:05, 2026-01-31, RFC 3339, or how long ago: 90s, 10m, 2h, 3d, 1w")
      ->type_name("TIME");
  verb->add_option("--until", timeline.until, "Up to this time; written as for --since")->type_name("TIME");
  AddRepeated(verb, "--kind", timeline.kinds,
              "Kind of event, or a group: process, file, net, unix; several with commas")
      ->type_name("KIND");
  OneOf(verb->add_option("--verdict", timeline.verdict, "What the policy decided; ask and approve are one"),
        "allow|audit|redirect|soft_delete|ask|approve|deny");
  OneOf(verb->add_option("--enforced", timeline.enforced, "Whether the decision took effect"), "yes|no");
  verb->add_option("--path", timeline.path,
                   "Path or new path, absolute; * within a folder, ** across them, ?, [abc]")
      ->type_name("GLOB");
  verb->add_option("--dest", timeline.dest,
                   "Address, address:port, CIDR, host name, unix socket path or @name")
      ->type_name("DEST");
  verb->add_option("--exe", timeline.exe, "Executable of the process")->type_name("GLOB");
  AddPid(*verb, timeline.pid, "Process");
}

// "Kinds of event: process (exec, fork, exit), file (...), ..., session, loss."
std::string KindsText() {
  std::vector<std::string> parts;
  std::set<v1::EventKind> grouped;
  for (const char* group : {"process", "file", "net", "unix"}) {
    std::vector<std::string> names;
    for (const v1::EventKind kind : KindsByName(group)) {
      names.push_back(KindName(kind));
      grouped.insert(kind);
    }
    parts.push_back(absl::StrCat(group, " (", absl::StrJoin(names, ", "), ")"));
  }
  for (const std::string& word : KindWords()) {
    const std::vector<v1::EventKind> kinds = KindsByName(word);
    if (kinds.size() == 1 && grouped.count(kinds[0]) == 0) parts.push_back(word);
  }
  return absl::StrCat("Kinds of event: ", absl::StrJoin(parts, ", "), ".");
}

void AddTimeline(CLI::App& app, Cli& cli) {
  CLI::App* timeline = AddVerb(app, cli, "timeline", "Show what happened in your sessions, or in one",
                               [&cli] { return Timeline(cli.context, cli.timeline); });
  AddFilterOptions(timeline, cli.timeline);
  timeline->add_flag("--follow,-f", cli.timeline.follow, "Go on with new events as they happen; ^C ends it");
  timeline->add_flag("--tree", cli.timeline.tree, "Processes as a tree, with what each one did");
  WholeNumber(timeline
                  ->add_option("--limit", cli.timeline.limit,
                               "The newest N events; 0 = all. Default 1000 in a table, else all; "
                               "with --follow 10 stored ones first")
                  ->type_name("N"),
              0, UINT32_MAX - 1);
  OneOf(
      timeline->add_option("--format", cli.timeline.format, "Form of the output; json is one object a line"),
      "table|json|csv");
  timeline->footer(absl::StrCat(KindsText(),
                                " Counts with × are exact, those with ≥ come from a source that may merge "
                                "repetitions. A '?' behind the "
                                "kind "
                                "marks what a program asked for; whether its call succeeded was not seen.\n\n"
                                "Examples:\n"
                                "  agentmon timeline\n"
                                "  agentmon timeline --tree --since 1h\n"
                                "  agentmon timeline --kind file --path '/etc/**' --format json\n"
                                "  agentmon timeline --kind connect --dest 10.0.0.0/8 --follow"));
  CLI::App* verify = AddVerb(*timeline, cli, "verify", "Check that the stored events are whole and unchanged",
                             [&cli] { return TimelineVerify(cli.context); });
  verify->footer("Exit status 1 when something is damaged. Root and the administrators' group only.");
}

void AddWatch(CLI::App& app, Cli& cli) {
  CLI::App* watch =
      AddVerb(app, cli, "watch", "Show what a running process does, without taking it into a session",
              [&cli] { return Watch(cli.context, cli.watch); });
  AddPid(*watch, cli.watch.pid, "Process to watch, with all its descendants");
  watch->get_option("--pid")->required();
  Seconds(watch
              ->add_option("--duration", cli.watch.duration,
                           "End after this time; default when the process ends, or ^C")
              ->type_name("SECONDS"),
          0.001, 1e7);
  OneOf(watch->add_option("--format", cli.watch.format, "Form of the output; json is one object a line"),
        "table|json");
  watch->footer("Examples:\n  agentmon watch --pid 4711 --duration 30");
}

void AddWhy(CLI::App& app, Cli& cli) {
  CLI::App* why =
      AddVerb(app, cli, "why", "Show what was stopped last, by which rule, and what would have been allowed",
              [&cli] { return Why(cli.context, cli.why); });
  why->add_option("--session", cli.why.session, "Session by id, beginning of its id, or name; default all")
      ->type_name("ID");
  why->add_option("--last", cli.why.last, "How many, the last one first")
      ->type_name("N")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  why->footer(
      "Inside of a session it speaks of that session, elsewhere of all of yours. Exit status 1 when nothing "
      "was stopped.\n\n"
      "Examples:\n  agentmon why\n  agentmon why --session review --last 5 --json");
}

void AddStatus(CLI::App& app, Cli& cli) {
  CLI::App* status =
      AddVerb(app, cli, "status", "Show whether the daemon is well: its sources, its store, its warnings",
              [&cli] { return Status(cli.context, cli.status); });
  OneOf(status->add_option("--output", cli.status.format, "The same as --json, as a choice"), "table|json");
}

void AddDebug(CLI::App& app, Cli& cli) {
  CLI::App* debug = AddVerb(app, cli, "debug", "Show what mechanisms are told of a policy", nullptr);
  debug->require_subcommand(1);
  CLI::App* plan =
      AddVerb(*debug, cli, "network-plan", "Show the nft commands of a session's network backstop", [&cli] {
        if (!cli.debug.session.empty() && !cli.debug.policies.empty())
          return cli.context.Fail(kUsage, "debug network-plan: a session and --policy exclude each other");
        return DebugNetworkPlan(cli.context, cli.debug, false);
      });
  plan->add_option("ID", cli.debug.session, "Session; default the newest")->type_name("ID");
  AddPolicyOption(plan, cli.debug.policies);
  plan->footer(
      "Examples:\n  agentmon debug network-plan fix-ci\n  agentmon debug network-plan --policy strict");
  CLI::App* apply = AddVerb(*debug, cli, "network-apply",
                            "Make the daemon's nft table anew, and show the commands of this session",
                            [&cli] { return DebugNetworkPlan(cli.context, cli.debug, true); });
  apply->add_option("ID", cli.debug.session, "Session; default the newest")->type_name("ID");
  apply->footer("Root and the administrators' group only.");
}

void AddCommonOptionsBelow(CLI::App& app, VerbContext& context) {
  for (CLI::App* verb : app.get_subcommands([](CLI::App*) { return true; })) {
    const std::string& name = verb->get_name();
    const bool has_children = !verb->get_subcommands([](CLI::App*) { return true; }).empty();
    if (!has_children || name == "timeline")
      AddCommonOptions(*verb, context, name != "run" && name != "start");
    AddCommonOptionsBelow(*verb, context);
  }
}

// The verb that was asked for: the deepest one that was parsed.
const CLI::App* Deepest(const CLI::App& app) {
  const std::vector<CLI::App*> parsed = app.get_subcommands();
  return parsed.empty() ? &app : Deepest(*parsed.front());
}

bool RunsAgent(const CLI::App& app) { return app.get_name() == "run" || app.get_name() == "start"; }

// The first option with a value that is no UTF-8, as an error; empty when there is none. Globs and
// directories are names of files, which are bytes.
std::string NotUtf8Text(const CLI::App& verb) {
  for (const CLI::App* app = &verb; app != nullptr; app = app->get_parent()) {
    for (const CLI::Option* option : app->get_options()) {
      if (option->get_type_name() == "GLOB" || option->get_type_name() == "DIR") continue;
      for (const std::string& value : option->results()) {
        if (!IsUtf8(value)) return absl::StrCat(option->get_name(), " '", value, "' is no UTF-8 text");
      }
    }
  }
  return "";
}

// What somebody probably means by an argument that a verb does not take.
std::string AboutArguments(const CLI::App& app) {
  if (RunsAgent(app)) return "the agent's command stands behind '--', as in 'agentmon run -- claude'";
  const std::string name = FullName(app);
  if (app.get_option_no_throw("--pid") != nullptr && app.get_option_no_throw("--session") == nullptr)
    return absl::StrCat("a process is named by its number, as in '", name, " --pid 4711'");
  return app.get_option_no_throw("--session") == nullptr
             ? ""
             : absl::StrCat("a session is named by '", name, " --session ID'");
}

int UsageStatus(const CLI::App& app) { return RunsAgent(app) ? kRunFailed : kUsage; }

// The verb's exit status, unless its output could not be written. A reader that has gone away is no failure.
int Finish(const VerbContext& context, int exit_status) {
  context.output->Flush();
  if (context.output->ok()) return exit_status;
  if (context.output->error() == EPIPE) return kOk;
  return context.Fail(kNegative,
                      absl::StrCat("write the output: ", strerrordesc_np(context.output->error())));
}

int Dispatch(const Cli& cli, const CLI::App& verb) {
  if (cli.context.has_command && !RunsAgent(verb)) {
    return cli.context.Fail(kUsage, absl::StrCat("'--' and a command make no sense for ", FullName(verb)));
  }
  for (const auto& [app, action] : cli.verbs) {
    if (app == &verb) return Finish(cli.context, action());
  }
  return cli.context.Fail(kUsage, "no verb: 'agentmon --help' lists them");
}

}  // namespace

std::unique_ptr<CLI::App> MakeApp(Cli& cli) {
  auto app =
      std::make_unique<CLI::App>("agentmon records what AI coding agents do on this host.", "agentmon");
  app->formatter(std::make_shared<HelpFormatter>());
  app->set_help_flag("-h,--help", "Show this help");
  app->set_version_flag("--version", std::string("agentmon ") + AGENTMON_VERSION, "Show the version");
  app->require_subcommand(1);
  app->option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);  // aliases may set defaults
  AddCommonOptions(*app, cli.context, false);
  AddRun(*app, cli);
  AddTimeline(*app, cli);
  AddSession(*app, cli);
  AddAttach(*app, cli);
  AddWatch(*app, cli);
  AddStatus(*app, cli);
  AddWhy(*app, cli);
  AddPolicy(*app, cli);
  AddDebug(*app, cli);
  AddCommonOptionsBelow(*app, cli.context);
  app->footer(
      "Exit status: 0 done, 1 the answer is no, 2 wrong usage, 3 the daemon cannot be reached or trusted; "
      "for 'run' that of the agent, or 125.\n\n"
      "Examples:\n"
      "  agentmon run -- claude\n"
      "  agentmon timeline --tree\n"
      "  agentmon timeline --follow --kind exec");
  return app;
}

std::string UsageTail(const CLI::App& app) { return RunsAgent(app) ? "-- CMD [ARGS]..." : ""; }

int RunCli(std::vector<std::string> arguments, int out_fd, int err_fd) {
  const bool wants_help = !arguments.empty() && arguments[0] == "help";  // "help run" as "run --help"
  if (wants_help) {
    arguments.erase(arguments.begin());
    arguments.push_back("--help");
  }
  if (arguments == std::vector<std::string>{"version"}) arguments = {"--version"};
  Output output(out_fd);
  Cli cli;
  cli.context.output = &output;
  cli.context.err_fd = err_fd;
  const auto dashes = std::find(arguments.begin(), arguments.end(), "--");
  cli.context.has_command = dashes != arguments.end();
  if (cli.context.has_command) cli.context.command.assign(dashes + 1, arguments.end());
  const std::unique_ptr<CLI::App> app = MakeApp(cli);
  const auto fail = [&](const CLI::ParseError& error) {
    const CLI::App& verb = *Deepest(*app);
    return cli.context.Fail(UsageStatus(verb), UsageErrorText(verb, error, AboutArguments(verb)));
  };
  try {
    app->parse(
        std::vector<std::string>(std::make_reverse_iterator(dashes), arguments.rend()));  // it wants them so
  } catch (const CLI::CallForVersion& version) {
    output.Line(version.what());
    return kOk;
  } catch (const CLI::Success&) {
    const std::vector<std::string> unknown = app->remaining(true);
    if (wants_help && !unknown.empty()) return fail(CLI::ExtrasError(unknown));
    output.Write(Deepest(*app)->help());
    return kOk;
  } catch (const CLI::ParseError& error) {
    return fail(error);
  }
  // The daemon's messages carry text, and a library would complain of other bytes in words of its own.
  if (const std::string error = NotUtf8Text(*Deepest(*app)); !error.empty())
    return cli.context.Fail(UsageStatus(*Deepest(*app)), error);
  return Dispatch(cli, *Deepest(*app));
}

}  // namespace agentmon
