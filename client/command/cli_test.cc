#include "client/command/cli.h"

#include <signal.h>
#include <sys/mman.h>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/connection/socket.h"
#include "client/output/names.h"
#include "common/base/unique_fd.h"
#include "common/cli/usage_error.h"
#include "tests/fake/fake_daemon.h"
#include "tests/fixture/child.h"

namespace agentmon {
namespace {

struct Said {
  int exit_status;
  std::string out, err;
};

Said Agentmon(const std::vector<std::string>& arguments) {
  const UniqueFd out(memfd_create("out", MFD_CLOEXEC)), err(memfd_create("err", MFD_CLOEXEC));
  const int exit_status = RunCli(arguments, out.get(), err.get());
  return {exit_status, ReadAll(out.get()), ReadAll(err.get())};
}

Said Ask(const FakeDaemon& daemon, std::vector<std::string> arguments) {
  arguments.insert(arguments.end(), {"--socket", daemon.socket()});
  return Agentmon(arguments);
}

// A daemon that has something to tell.
std::unique_ptr<FakeDaemon> TalkativeDaemon() {
  auto daemon = std::make_unique<FakeDaemon>();
  daemon->state().sessions = {SampleSession()};
  daemon->state().events = SampleEvents();
  daemon->state().status = SampleStatus();
  return daemon;
}

v1::EventFilter Filter(const TimelineOptions& options) {
  const absl::StatusOr<v1::EventFilter> filter =
      MakeFilter(options, absl::UnixEpoch() + absl::Hours(24), absl::UTCTimeZone());
  REQUIRE(filter.ok());
  return *filter;
}

}  // namespace

TEST_CASE("help and version are answers, on standard output") {
  const Said version = Agentmon({"--version"});
  CHECK(version.exit_status == 0);
  CHECK(absl::StartsWith(version.out, "agentmon "));
  CHECK(Agentmon({"help", "session", "stop"}).out == Agentmon({"session", "stop", "--help"}).out);
  CHECK(Agentmon({"help"}).out == Agentmon({"-h"}).out);
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{"--help"},
                                             {"run", "-h"},
                                             {"session", "--help"},
                                             {"session", "stop", "-h"},
                                             {"timeline", "--help"},
                                             {"timeline", "verify", "-h"},
                                             {"watch", "-h"},
                                             {"attach", "-h"},
                                             {"status", "-h"}}) {
    const Said help = Agentmon(arguments);
    CAPTURE(arguments[0]);
    CHECK(help.exit_status == 0);
    const std::string verb = arguments[0][0] == '-' ? "" : " " + arguments[0];
    CHECK(absl::StartsWith(help.out, absl::StrCat("Usage: agentmon", verb)));
    CHECK((verb.empty() || !absl::StartsWith(help.out, absl::StrCat("Usage: agentmon", verb, verb))));
    CHECK_FALSE(absl::StartsWith(help.out, "Usage: agentmon agentmon"));
    CHECK(help.err.empty());
    for (const absl::string_view line : absl::StrSplit(help.out, '\n')) CHECK(line.size() <= 90);
  }
}

TEST_CASE("help names what is required, and every kind of event") {
  CHECK(absl::StartsWith(Agentmon({"attach", "-h"}).out, "Usage: agentmon attach --pid PID [OPTIONS]\n"));
  const std::string help = Agentmon({"timeline", "-h"}).out;
  for (const std::string& word : KindWords()) {
    CAPTURE(word);
    CHECK(absl::StrContains(help, word));
  }
}

TEST_CASE("a wrong command line is status 2, with the nearest right one") {
  const auto check = [](const std::vector<std::string>& arguments, const std::string& message) {
    const Said said = Agentmon(arguments);
    CAPTURE(said.err);
    CHECK(said.exit_status == 2);
    CHECK(said.out.empty());
    CHECK(absl::StrContains(said.err, message));
  };
  check({}, "a verb is missing");
  check({"timelin"}, "unknown verb 'timelin', did you mean 'timeline'?");
  check({"session", "lst"}, "session: unknown verb 'lst', did you mean 'list'?");
  check({"session"}, "session: a verb is missing");
  check({"claude"}, "unknown verb 'claude', there are run, timeline,");
  check({"--json", "status"}, "'--json' stands behind its verb, as in 'agentmon status --json'");
  check({"session", "--json", "list"},
        "'--json' stands behind its verb, as in 'agentmon session list --json'");
  check({"list"}, "unknown verb 'list', did you mean 'agentmon session list'?");
  check({"help", "nope"}, "unknown verb 'nope'");
  check({"help", "session", "nope"}, "session: unknown verb 'nope'");
  check({"attach", "123"}, "a process is named by its number, as in 'agentmon attach --pid 4711'");
  check({"timeline", "s-1"}, "a session is named by 'agentmon timeline --session ID'");
  check({"status", "-j"}, "unknown option '-j', did you mean '--json'?");
  check({"timeline", "--since", "1h", "--until", "2h"}, "--since is later than --until");
  check({"timeline", "--follow", "--until", "2h"}, "--until has passed");
  check({"timeline", "--tree", "--json"}, "--tree is a form of its own");
  check({"timeline", "--kind", "nonsense"}, "'nonsense' is no kind of event, there are process, file,");
  check({"timeline", "--sess", "x"}, "unknown option '--sess', did you mean '--session'?");
  check({"timeline", "--sesion", "x"}, "unknown option '--sesion', did you mean '--session'?");
  check({"timeline", "--format", "xml"}, "--format: 'xml' is none of table|json|csv");
  check({"timeline", "--format", "jsn"}, "'jsn' is none of table|json|csv, did you mean 'json'?");
  check({"timeline", "--since"}, "--since needs a value, as in 'agentmon timeline --since TIME'");
  check({"session", "list", "--json=x"}, "--json takes no value");
  check({"watch", "--pid", "1", "--duration", "x"}, "--duration: 'x' is no number of seconds");
  check({"session", "stop", "a", "--grace", "-5"}, "--grace: '-5' is no number of seconds from 0 to 3600");
  check({"timeline", "--since", "soon"}, "timeline: --since: 'soon' is no time");
  check({"timeline", "--kind", "opne"}, "--kind: 'opne' is no kind of event, did you mean 'open'?");
  check({"timeline", "--limit", "many"}, "--limit: 'many' is no whole number");
  check({"timeline", "--tree", "--follow"}, "cannot go with --follow");
  check({"attach", "--pid", "0"}, "'0' is no process id");
  check({"attach", "--pid", "-1"}, "--pid");
  check({"attach"}, "--pid is required, as in 'agentmon attach --pid PID'");
  check({"status", "--", "x"}, "make no sense for agentmon status");
  check({"status", "extra"}, "unexpected argument 'extra'");
  check({"session", "stop"}, "name one session");
  check({"session", "stop", "--all", "s-1"}, "name one session");
}

TEST_CASE("an option's value that is no UTF-8 is wrong usage, but for names of files") {
  FakeDaemon daemon;
  const std::string bad = "a\xff";
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{"timeline", "--session", bad},
                                             {"timeline", "--dest", bad},
                                             {"timeline", "--since", bad},
                                             {"timeline", "--kind", bad},
                                             {"session", "show", bad},
                                             {"session", "stop", bad},
                                             {"attach", "--pid", "1", "--name", bad},
                                             {"attach", "--pid", "1", "--label", "k=" + bad},
                                             {"status", "--socket", bad}}) {
    const Said said = Agentmon(arguments);
    CAPTURE(arguments[1], said.err);
    CHECK(said.exit_status == 2);
    CHECK(absl::StrContains(said.err, "a\\xff' is no UTF-8 text"));
    CHECK(std::count(said.err.begin(), said.err.end(), '\n') == 1);
    if (arguments[0] != "session")
      CHECK(absl::StrContains(said.err, "agentmon: " + arguments[arguments.size() - 2] + " "));
  }
  const Said run = Agentmon({"run", "--name", bad, "--", "/bin/true"});
  CHECK(run.exit_status == 125);
  CHECK(absl::StrContains(run.err, "--name 'a\\xff' is no UTF-8 text"));
  CHECK(Ask(daemon, {"timeline", "--path", bad, "--exe", bad}).exit_status == 0);
  CHECK(daemon.state().query_requests[0].filter().path_glob() == bad);
}

TEST_CASE("of an option given twice the last one counts, but labels and kinds add up") {
  CHECK(absl::StrContains(Agentmon({"status", "--socket", "/a", "--socket", "/b"}).err, "no daemon at /b"));
  FakeDaemon daemon;
  Ask(daemon, {"timeline", "--kind", "exec", "--kind", "exit", "--pid", "1", "--pid", "2"});
  CHECK(daemon.state().query_requests[0].filter().kinds_size() == 2);
  CHECK(daemon.state().query_requests[0].filter().pid() == 2);
}

TEST_CASE("a word is near another by a slip or two") {
  const std::vector<std::string> verbs{"run", "status", "session", "timeline", "watch", "attach"};
  CHECK(Nearest("sesion", verbs) == "session");
  CHECK(Nearest("statsu", verbs) == "status");
  CHECK(Nearest("something-else", verbs).empty());
  CHECK(Nearest("ps", verbs).empty());
  CHECK(Nearest("sess", verbs) == "session");
}

TEST_CASE("an unreachable daemon is status 3") {
  const Said said = Agentmon({"status", "--socket", "/no/such/socket"});
  CHECK(said.exit_status == 3);
  CHECK(said.err == absl::StrCat("agentmon: no daemon at /no/such/socket (no such file): ", HowToStart(),
                                 ", or name another with --socket\n"));
}

TEST_CASE("a refusal is status 1 with the daemon's hint, whatever bytes are in it") {
  FakeDaemon daemon;
  daemon.state().refusal = DetailedError(grpc::StatusCode::NOT_FOUND, "no session \x1b[31mx", "NO_SESSION",
                                         "see agentmon session list");
  const Said said = Ask(daemon, {"session", "show", "x"});
  CHECK(said.exit_status == 1);
  CHECK(said.err == "agentmon: no session \\x1b[31mx: see agentmon session list\n");
}

TEST_CASE("status and sessions are shown for people and as JSON") {
  const auto daemon = TalkativeDaemon();
  const Said status = Ask(*daemon, {"status"});
  CHECK(status.exit_status == 0);
  CHECK(absl::StrContains(status.out, "agentmond  0.1.0, pid 321"));
  CHECK(absl::StrContains(status.out, "process    active, counts exact, 9 events, 5 lost"));
  CHECK(absl::StrContains(status.out, "not active, no file changes: the process was attached, not started"));
  CHECK(absl::StrContains(status.out, "warning    fanotify: only 3 of 5 mounts"));
  const auto json = nlohmann::json::parse(Ask(*daemon, {"status", "--json"}).out);
  CHECK(json["store"]["events"] == 1234);
  CHECK(json["sources"][1]["active"] == false);
  CHECK(nlohmann::json::parse(Ask(*daemon, {"status", "--output", "json"}).out) == json);
  CHECK(absl::StrContains(Ask(*daemon, {"session", "list"}).out, "claude 'fix the build'"));
  const auto list = nlohmann::json::parse(Ask(*daemon, {"session", "list", "--json"}).out);
  CHECK(list[0]["id"] == "s-1");
  CHECK(list[0]["labels"]["ticket"] == "42");
  CHECK(absl::StrContains(Ask(*daemon, {"session", "show"}).out, "label      ticket=42"));
  CHECK(nlohmann::json::parse(Ask(*daemon, {"session", "show", "s-1", "--json"}).out)["name"] == "fix-ci");
}

TEST_CASE("session list asks for ended ones only with --all, and says so when nothing runs") {
  FakeDaemon daemon;
  const Said said = Ask(daemon, {"session", "list"});
  CHECK(said.exit_status == 0);
  CHECK(said.out.empty());
  CHECK(absl::StrContains(said.err, "--all shows ended ones"));
  CHECK(Ask(daemon, {"session", "list", "--all", "--json"}).out == "[]\n");
  CHECK_FALSE(daemon.state().list_requests[0].ended());
  CHECK(daemon.state().list_requests[1].ended());
}

TEST_CASE("session stop passes on which and how long, and names what it stopped") {
  const auto daemon = TalkativeDaemon();
  CHECK(Ask(*daemon, {"session", "stop", "s-1"}).out == "stopped s-1\n");
  CHECK(Ask(*daemon, {"session", "stop", "--all", "--grace", "0", "--json"}).out ==
        "{\n  \"stopped\": [\n    \"s-1\"\n  ]\n}\n");
  Ask(*daemon, {"session", "stop", "s-1", "--grace", "1.5"});
  const std::vector<v1::StopRequest>& requests = daemon->state().stop_requests;
  REQUIRE(requests.size() == 3);
  CHECK(requests[0].session() == "s-1");
  CHECK(requests[0].grace_ms() == 3000);
  CHECK(requests[1].all());
  CHECK(requests[1].grace_ms() == -1);
  CHECK(requests[2].grace_ms() == 1500);
}

TEST_CASE("attach works as a verb and below session") {
  FakeDaemon daemon;
  *daemon.state().adopt.mutable_session() = SampleSession();
  daemon.state().adopt.set_processes(2);
  const Said said = Ask(daemon, {"attach", "--pid", "4711", "--name", "n", "--label", "a=b"});
  CHECK(said.out == "session s-1: 2 processes\n");
  CHECK(absl::StrContains(
      said.err, "not recorded in this session: file changes (source notify): the process was attached"));
  CHECK(nlohmann::json::parse(Ask(daemon, {"session", "attach", "--pid", "4712", "--json"}).out)["moved"] ==
        2);
  REQUIRE(daemon.state().adopt_requests.size() == 2);
  CHECK(daemon.state().adopt_requests[0].pid() == 4711);
  CHECK(daemon.state().adopt_requests[0].labels().at("a") == "b");
}

TEST_CASE("the filter says what the options say") {
  TimelineOptions options;
  CHECK(Filter(options).session() == "*");
  options.tree = true;
  CHECK(Filter(options).session().empty());
  options.tree = false;
  options.session = "all";
  options.since = "1h";
  options.until = "1970-01-01T23:30:00Z";
  options.kinds = {"exec,net"};
  options.verdict = "approve";
  options.enforced = "no";
  options.path = "/etc/**";
  options.dest = "10.0.0.0/8";
  options.exe = "*/git";
  options.pid = 7;
  const v1::EventFilter filter = Filter(options);
  CHECK(filter.session() == "*");
  CHECK(filter.since_ns() == int64_t{23} * 3600 * 1'000'000'000);
  CHECK(filter.until_ns() == int64_t{47} * 1800 * 1'000'000'000);
  CHECK(filter.kinds_size() == 7);
  CHECK(filter.decision() == v1::ASK);
  CHECK(filter.enforced() == v1::EventFilter::NO);
  CHECK(filter.path_glob() == "/etc/**");
  CHECK(filter.dest() == "10.0.0.0/8");
  CHECK(filter.exe_glob() == "*/git");
  CHECK(filter.pid() == 7);
}

TEST_CASE("a timeline without a row says so to people") {
  FakeDaemon daemon;
  CHECK(Ask(daemon, {"timeline"}).err == "agentmon: no events match\n");
  CHECK(absl::StrContains(Ask(daemon, {"timeline", "--tree", "--path", "etc/*"}).err, "paths are absolute"));
  CHECK(Ask(daemon, {"timeline", "--json"}).err.empty());
  CHECK(Ask(daemon, {"timeline", "--format", "csv"}).err.empty());
}

TEST_CASE("timeline prints a table, or one JSON object a line") {
  const auto daemon = TalkativeDaemon();
  CHECK(absl::StrContains(Ask(*daemon, {"timeline"}).out, "/etc/hosts ≥3"));
  const Said json = Ask(*daemon, {"timeline", "--format", "json"});
  CHECK(std::count(json.out.begin(), json.out.end(), '\n') == static_cast<int>(SampleEvents().size()));
  CHECK(Ask(*daemon, {"timeline", "--json"}).out == json.out);
  CHECK(daemon->state().query_requests[1].limit() == 0);
  CHECK(absl::StrContains(Ask(*daemon, {"timeline", "--tree"}).out, "└─ 1000 (claude)"));
}

TEST_CASE("a table shows the newest thousand and says when it cut; a limit of 0 is none") {
  FakeDaemon daemon;
  for (int i = 0; i < 1005; ++i) {
    daemon.state().events.push_back(SampleEvents()[3]);
    daemon.state().events.back().mutable_file()->set_path(absl::StrCat("/f", i, "."));
  }
  const Said cut = Ask(daemon, {"timeline"});
  CHECK(std::count(cut.out.begin(), cut.out.end(), '\n') == 1001);
  CHECK_FALSE(absl::StrContains(cut.out, "/f4."));
  CHECK(absl::StrContains(cut.out, "/f5."));
  CHECK(absl::StrContains(cut.err, "the newest 1000 events"));
  const Said all = Ask(daemon, {"timeline", "--limit", "0"});
  CHECK(std::count(all.out.begin(), all.out.end(), '\n') == 1006);
  CHECK(all.err.empty());
  daemon.state().events.resize(1000);
  CHECK(Ask(daemon, {"timeline"}).err.empty());
}

TEST_CASE(
    "timeline --follow prints what is stored, what comes and what it missed, and says when the daemon "
    "stops") {
  const auto daemon = TalkativeDaemon();
  daemon->state().stream_ends = true;
  daemon->state().gap = 4;
  const Said said = Ask(*daemon, {"timeline", "--follow", "--json"});
  CHECK(said.exit_status == 3);
  CHECK(absl::StartsWith(said.err, "agentmon: agentmond has stopped"));
  CHECK(absl::EndsWith(said.out, "{\"kind\":\"stream_gap\",\"missed\":4}\n"));
  CHECK(daemon->state().tail_requests[0].backlog() == 10);
  Ask(*daemon, {"timeline", "--follow", "--since", "1h"});
  CHECK(daemon->state().tail_requests[1].backlog() == UINT32_MAX);
  Ask(*daemon, {"timeline", "--follow", "--limit", "3"});
  CHECK(daemon->state().tail_requests[2].backlog() == 3);
}

TEST_CASE("following and watching end at ^C with status 0, watching also by its duration") {
  const auto daemon = TalkativeDaemon();
  for (const std::vector<std::string>& verb :
       std::vector<std::vector<std::string>>{{"timeline", "--follow"}, {"watch", "--pid", "1"}}) {
    std::vector<std::string> argv{FAKE_BIN "/agentmon"};
    argv.insert(argv.end(), verb.begin(), verb.end());
    argv.insert(argv.end(), {"--socket", daemon->socket()});
    Child child(argv);
    REQUIRE(child.WaitForOutput("ring buffer"));
    kill(child.pid(), SIGINT);
    const ChildEnd end = child.Finish();
    CHECK_FALSE(end.by_signal);
    CHECK(end.code == 0);
    CHECK(end.err.empty());
  }
  const Said said = Ask(*daemon, {"watch", "--pid", "1", "--duration", "0.2", "--format", "json"});
  CHECK(said.exit_status == 0);
  CHECK(absl::StrContains(said.out, "\"lost\":12"));
}

TEST_CASE("watching shows no session as started: the row is the daemon's, and programs alone get it") {
  const auto daemon = TalkativeDaemon();
  daemon->state().stream_ends = true;
  CHECK(Ask(*daemon, {"watch", "--pid", "1"}).exit_status == 3);  // the daemon stopped
  v1::Event ended;
  ended.set_kind(v1::SESSION);
  ended.mutable_session_change()->set_what(v1::SessionChange::ENDED);
  daemon->state().events.push_back(ended);
  const Said table = Ask(*daemon, {"watch", "--pid", "1"});
  CHECK(table.exit_status == 0);
  CHECK(absl::StrContains(table.out, "ring buffer"));
  CHECK_FALSE(absl::StrContains(table.out, "started"));
  CHECK(table.err.empty());  // no terminal
  CHECK(absl::StrContains(Ask(*daemon, {"watch", "--pid", "1", "--json"}).out, "\"change\":\"started\""));
}

TEST_CASE("a reader that goes away ends the timeline quietly") {
  FakeDaemon daemon;
  for (int i = 0; i < 20000; ++i) daemon.state().events.push_back(SampleEvents()[3]);
  for (const std::string trap : {"", "trap '' PIPE; "}) {
    Child child({"/bin/bash", "-c",
                 trap + FAKE_BIN "/agentmon timeline --json --socket " + daemon.socket() +
                     " | head -n 1 >/dev/null; echo ${PIPESTATUS[0]}"});
    const ChildEnd end = child.Finish();
    CHECK(end.out == (trap.empty() ? "141\n" : "0\n"));
    CHECK(end.err.empty());
  }
}

TEST_CASE("output that cannot be written is a failure") {
  const auto daemon = TalkativeDaemon();
  for (const std::string verb : {"timeline", "timeline --json", "status", "session list --json"}) {
    CAPTURE(verb);
    const ChildEnd end =
        Child(
            {"/bin/sh", "-c", FAKE_BIN "/agentmon " + verb + " --socket " + daemon->socket() + " >/dev/full"})
            .Finish();
    CHECK(end.code == 1);
    CHECK(absl::StrContains(end.err, "No space left on device"));
  }
}

TEST_CASE("timeline verify is status 1 when the store is damaged") {
  FakeDaemon daemon;
  daemon.state().verify.set_intact(true);
  CHECK(Ask(daemon, {"timeline", "verify"}).exit_status == 0);
  daemon.state().verify.set_intact(false);
  daemon.state().verify.add_findings("batch 7: hash differs");
  const Said said = Ask(daemon, {"timeline", "verify"});
  CHECK(said.exit_status == 1);
  CHECK(absl::StrContains(said.out, "batch 7: hash differs"));
  CHECK(nlohmann::json::parse(Ask(daemon, {"timeline", "verify", "--json"}).out)["intact"] == false);
}

}  // namespace agentmon
