// agentmon run as a program, against a daemon with canned answers and a shim that needs none.
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include <catch2/catch.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "tests/fake/fake_daemon.h"
#include "tests/fixture/child.h"

namespace agentmon {
namespace {

const std::string kAgentmon = FAKE_BIN "/agentmon";

std::vector<std::string> RunArguments(const FakeDaemon& daemon, const std::vector<std::string>& command,
                                      const std::vector<std::string>& options = {}) {
  std::vector<std::string> argv{kAgentmon, "run", "--socket", daemon.socket()};
  if (geteuid() == 0) argv.push_back("--allow-root");
  argv.insert(argv.end(), options.begin(), options.end());
  argv.push_back("--");
  argv.insert(argv.end(), command.begin(), command.end());
  return argv;
}

ChildEnd RunShell(const FakeDaemon& daemon, const std::string& script) {
  return Child(RunArguments(daemon, {"/bin/sh", "-c", script})).Finish();
}

std::vector<v1::StopRequest> Stops(FakeDaemon& daemon) {
  const std::lock_guard<std::mutex> lock(daemon.state().mutex);
  return daemon.state().stop_requests;
}

}  // namespace

TEST_CASE("run exits as its agent does and writes nothing itself") {
  FakeDaemon daemon;
  for (const int status : {0, 1, 2, 3, 125, 126, 127, 130, 255}) {
    CAPTURE(status);
    const ChildEnd end = RunShell(daemon, absl::StrCat("exit ", status));
    CHECK_FALSE(end.by_signal);
    CHECK(end.code == status);
    CHECK(end.out.empty());
    CHECK(end.err == "");
  }
}

TEST_CASE("run dies by the signal that killed its agent, without a core") {
  FakeDaemon daemon;
  for (const int number : {SIGHUP, SIGINT, SIGQUIT, SIGABRT, SIGKILL, SIGSEGV, SIGPIPE, SIGTERM, SIGUSR1}) {
    CAPTURE(number);
    const ChildEnd end = RunShell(daemon, absl::StrCat("kill -", number, " $$"));
    CHECK(end.by_signal);
    CHECK(end.code == number);
    CHECK_FALSE(end.core_dumped);
  }
}

TEST_CASE("what stands behind the first -- reaches the agent untouched") {
  FakeDaemon daemon;
  const ChildEnd end =
      Child(RunArguments(daemon, {"/usr/bin/printf", "[%s]", "--", "-h", "--socket", "", "a b", "--help"}))
          .Finish();
  CHECK(end.out == "[--][-h][--socket][][a b][--help]");
  CHECK(Child(RunArguments(daemon, {"/bin/echo", "help"})).Finish().out == "help\n");
}

TEST_CASE("the shim gets socket, token and command; the daemon name, labels, workspace and command") {
  FakeDaemon daemon;
  const std::string log = daemon.socket() + ".shim";
  Child::Options options;
  options.environment = {"FAKE_SHIM_LOG=" + log};
  const ChildEnd end =
      Child(RunArguments(daemon, {"/bin/true", "x"},
                         {"--name", "n", "--label", "a=b=c", "--label", "d=", "--workspace", "/usr/../tmp"}),
            options)
          .Finish();
  CHECK(end.code == 0);
  const int fd = open(log.c_str(), O_RDONLY | O_CLOEXEC);
  const std::vector<std::string> words = absl::StrSplit(ReadAll(fd), '\n');
  close(fd);
  unlink(log.c_str());
  REQUIRE(words.size() == 9);
  CHECK(absl::EndsWith(words[0], "/fakebin/agentmon-shim"));
  CHECK(words[1] == "--socket");
  CHECK(words[2] == daemon.socket());
  CHECK(words[3] == "--token-fd");
  CHECK(std::vector<std::string>(words.begin() + 5, words.end() - 1) ==
        std::vector<std::string>{"--", "/bin/true", "x"});
  const std::lock_guard<std::mutex> lock(daemon.state().mutex);
  REQUIRE(daemon.state().start_requests.size() == 1);
  const v1::StartRequest& request = daemon.state().start_requests[0];
  CHECK(request.name() == "n");
  CHECK(request.workspace() == "/tmp");
  CHECK(request.labels().at("a") == "b=c");
  CHECK(request.labels().at("d").empty());
  CHECK(request.command_size() == 2);
  CHECK(request.allow_root() == (geteuid() == 0));
}

TEST_CASE("the agent has the descriptors that run inherited, and no other") {
  FakeDaemon daemon;
  const std::vector<std::string> direct{"/bin/sh", "-c", "cd /proc/self/fd && for f in *; do echo $f; done"};
  Child::Options options;
  options.setup = [] {
    dup2(2, 7);  // as a make job server or <(cmd) would
    dup2(2, 120);
  };
  const ChildEnd wrapped = Child(RunArguments(daemon, direct), options).Finish();
  CHECK(wrapped.out == Child(direct, options).Finish().out);
  CHECK(absl::StrContains(wrapped.out, "\n7\n"));
  CHECK(absl::StrContains(wrapped.out, "120\n"));
}

TEST_CASE("closed standard descriptors are closed for the agent too") {
  FakeDaemon daemon;
  const std::vector<std::string> direct{"/bin/sh", "-c", "cd /proc/self/fd && for f in *; do echo $f; done"};
  Child::Options options;
  options.setup = [] {
    close(0);
    close(2);
  };
  CHECK(Child(RunArguments(daemon, direct), options).Finish().out == Child(direct, options).Finish().out);
}

TEST_CASE("the agent has the signal mask and the ignored signals that run inherited") {
  FakeDaemon daemon;
  const std::vector<std::string> direct{"/usr/bin/grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status"};
  Child::Options options;
  options.setup = [] {
    for (const int number : {SIGHUP, SIGCHLD, SIGTSTP, SIGPIPE, SIGCONT}) signal(number, SIG_IGN);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    sigaddset(&set, SIGTERM);
    sigprocmask(SIG_SETMASK, &set, nullptr);
  };
  const ChildEnd wrapped = Child(RunArguments(daemon, direct), options).Finish();
  CHECK(wrapped.out == Child(direct, options).Finish().out);
  CHECK(Child(RunArguments(daemon, direct)).Finish().out == Child(direct).Finish().out);
}

TEST_CASE("a caller that ignores or blocks SIGCHLD gets the agent's status all the same") {
  FakeDaemon daemon;
  Child::Options options;
  options.setup = [] { signal(SIGCHLD, SIG_IGN); };
  CHECK(Child(RunArguments(daemon, {"/bin/sh", "-c", "exit 7"}), options).Finish().code == 7);
  options.setup = [] {
    sigset_t set;
    sigfillset(&set);
    sigprocmask(SIG_SETMASK, &set, nullptr);
  };
  CHECK(Child(RunArguments(daemon, {"/bin/sh", "-c", "exit 8"}), options).Finish().code == 8);
}

TEST_CASE("HUP and TERM reach the agent, INT and USR1 when a process sends them") {
  FakeDaemon daemon;
  for (const auto& [number, name] :
       {std::pair(SIGHUP, "HUP"), std::pair(SIGTERM, "TERM"), std::pair(SIGINT, "INT"),
        std::pair(SIGQUIT, "QUIT"), std::pair(SIGUSR1, "USR1")}) {
    CAPTURE(name);
    Child child(RunArguments(daemon, {"/bin/sh", "-c",
                                      absl::StrCat("trap 'echo got; exit 44' ", name,
                                                   "; echo up; while :; do sleep 0.05; done")}));
    REQUIRE(child.WaitForOutput("up"));
    kill(child.pid(), number);
    const ChildEnd end = child.Finish();
    CHECK(end.code == 44);
    CHECK(end.out == "up\ngot\n");
  }
  CHECK(Stops(daemon).empty());
}

TEST_CASE("an agent that outlives TERM for three seconds has its session stopped at once") {
  FakeDaemon daemon;
  Child child(
      RunArguments(daemon, {"/bin/sh", "-c", "trap '' TERM; echo $$ up; while :; do sleep 0.05; done"}));
  REQUIRE(child.WaitForOutput("up"));
  const pid_t agent = atoi(child.OutputSoFar().c_str());
  REQUIRE(agent > 1);
  daemon.state().on_stop = [agent](const v1::StopRequest&) { kill(agent, SIGKILL); };
  const absl::Time before = absl::Now();
  kill(child.pid(), SIGTERM);
  const ChildEnd end = child.Finish();
  CHECK(absl::Now() - before > absl::Seconds(2.5));
  CHECK(end.by_signal);
  CHECK(end.code == SIGKILL);
  REQUIRE(Stops(daemon).size() == 1);
  CHECK(Stops(daemon)[0].session() == "s-1");
  CHECK(Stops(daemon)[0].grace_ms() == -1);
}

TEST_CASE("an agent that outlives TERM is killed also when the daemon cannot stop its session") {
  FakeDaemon daemon;
  daemon.state().fail_stop = true;
  Child child(RunArguments(daemon, {"/bin/sh", "-c", "trap '' TERM; echo up; while :; do sleep 0.05; done"}));
  REQUIRE(child.WaitForOutput("up"));
  kill(child.pid(), SIGTERM);
  const ChildEnd end = child.Finish();
  CHECK(end.by_signal);
  CHECK(end.code == SIGKILL);
}

TEST_CASE("without a terminal an agent can be stopped and continued behind run's back") {
  FakeDaemon daemon;
  Child::Options options;
  options.setup = [] { setsid(); };
  Child child(RunArguments(daemon, {"/bin/sh", "-c", "(sleep 0.2; kill -CONT $$) & kill -STOP $$; exit 9"}),
              options);
  CHECK(child.Finish().code == 9);
}

TEST_CASE("with --exec the agent is the very process, and has no descriptor more") {
  FakeDaemon daemon;
  Child child(RunArguments(daemon, {"/bin/sh", "-c", "echo $$"}, {"--exec"}));
  const std::string pid = absl::StrCat(child.pid(), "\n");
  CHECK(child.Finish().out == pid);
  const std::vector<std::string> direct{
      "/bin/sh", "-c", "cd /proc/self/fd && for f in *; do echo $f; done; grep ^Sig[BI] /proc/self/status"};
  CHECK(Child(RunArguments(daemon, direct, {"--exec"})).Finish().out == Child(direct).Finish().out);
}

TEST_CASE("an agent is not run as root by accident, and the daemon is not even asked") {
  if (geteuid() != 0) return;
  FakeDaemon daemon;
  const ChildEnd end =
      Child({kAgentmon, "run", "--socket", daemon.socket(), "--", "/bin/echo", "ran"}).Finish();
  CHECK(end.code == 125);
  CHECK(end.out.empty());
  CHECK(absl::StartsWith(end.err, "agentmon: an agent is not run as root"));
  const std::lock_guard<std::mutex> lock(daemon.state().mutex);
  CHECK(daemon.state().start_requests.empty());
}

TEST_CASE("failures of run are status 125, one line on stderr and no agent") {
  FakeDaemon daemon;
  const std::vector<std::string> echo{"/bin/echo", "ran"};
  const auto check = [](const std::vector<std::string>& argv, const std::string& message) {
    const ChildEnd end = Child(argv).Finish();
    CAPTURE(end.err);
    CHECK(end.code == 125);
    CHECK(end.out.empty());
    CHECK(absl::StartsWith(end.err, "agentmon: "));
    CHECK(absl::StrContains(end.err, message));
    CHECK(std::count(end.err.begin(), end.err.end(), '\n') == 1);
  };
  check(RunArguments(daemon, {}), "no agent to run");
  check(RunArguments(daemon, echo, {"--nmae", "x"}), "unknown option '--nmae', did you mean '--name'?");
  check(RunArguments(daemon, echo, {"--label", "x"}), "--label 'x' is not of the form KEY=VALUE");
  check(RunArguments(daemon, echo, {"--workspace", "/no/such"}), "--workspace /no/such: No such file");
  check(RunArguments(daemon, echo, {"--workspace", "/dev/null"}), "--workspace /dev/null: Not a directory");
  check(RunArguments(daemon, echo, {"--socket", "/no/such.sock"}), "no daemon at /no/such.sock");
  check({kAgentmon, "run", "/bin/echo"}, "stands behind '--'");
  daemon.state().refusal =
      DetailedError(grpc::StatusCode::RESOURCE_EXHAUSTED, "too many\nsessions", "TOO_MANY", "stop some");
  check(RunArguments(daemon, echo), "too many\\nsessions: stop some");
}

TEST_CASE("where the limits leave no room for gRPC, verbs fail with the reason and neither hang nor abort") {
  FakeDaemon daemon;
  const auto check = [&](__rlimit_resource resource, rlim_t value, const std::string& message) {
    CAPTURE(message, value);
    Child::Options options;
    options.setup = [=] {
      const rlimit limit{value, value};
      setrlimit(resource, &limit);
    };
    const ChildEnd run = Child(RunArguments(daemon, {"/bin/echo", "ran"}), options).Finish();
    CHECK(run.code == 125);
    CHECK(run.out.empty());
    CHECK(absl::StrContains(run.err, message));
    CHECK(std::count(run.err.begin(), run.err.end(), '\n') == 1);
    for (const std::vector<std::string>& verb : std::vector<std::vector<std::string>>{
             {"status"}, {"session", "list"}, {"timeline"}, {"watch", "--pid", "1"}}) {
      std::vector<std::string> argv{kAgentmon, "--socket", daemon.socket()};
      argv.insert(argv.end(), verb.begin(), verb.end());
      const ChildEnd end = Child(argv, options).Finish();
      CHECK_FALSE(end.by_signal);
      CHECK(end.code == 3);
      CHECK(absl::StrContains(end.err, message));
    }
  };
  for (const rlim_t descriptors : {5, 6, 7, 8}) check(RLIMIT_NOFILE, descriptors, "'ulimit -n'");
  // Root has no limit of processes; the sanitizers need more address space than any limit leaves.
  if (geteuid() != 0)
    for (const rlim_t processes : {1, 5}) check(RLIMIT_NPROC, processes, "'ulimit -u'");
#if !defined(__SANITIZE_ADDRESS__)
  check(RLIMIT_AS, 60'000 * 1024, "'ulimit -v'");
#endif
  CHECK(daemon.state().start_requests.empty());
}

TEST_CASE("a session that no process entered is dropped") {
  FakeDaemon daemon;
  v1::Session session = SampleSession();
  session.set_state(v1::Session::STARTING);
  daemon.state().sessions = {session};
  daemon.state().start.set_token("too short for the shim");
  const ChildEnd end = Child(RunArguments(daemon, {"/bin/true"})).Finish();
  CHECK(end.code == 125);
  CHECK(absl::StartsWith(end.err, "agentmon-shim: called wrongly"));
  CHECK(Stops(daemon).size() == 1);
}

TEST_CASE("session start is run") {
  FakeDaemon daemon;
  std::vector<std::string> argv = RunArguments(daemon, {"/bin/sh", "-c", "exit 6"}, {"--name", "x"});
  argv[1] = "start";
  argv.insert(argv.begin() + 1, "session");
  CHECK(Child(argv).Finish().code == 6);
}

TEST_CASE("an agent can be run in a directory that was removed") {
  FakeDaemon daemon;
  const std::vector<std::string> argv = RunArguments(daemon, {"/bin/echo", "ran"});
  Child::Options options;
  options.setup = [] {
    char gone[] = "/tmp/gone-XXXXXX";
    if (mkdtemp(gone) == nullptr || chdir(gone) != 0 || rmdir(gone) != 0) _exit(98);
  };
  CHECK(Child(argv, options).Finish().out == "ran\n");
}

TEST_CASE("without agentmon-ns the shim is started itself") {
  FakeDaemon daemon;
  daemon.state().start.set_mount_namespace(true);
  CHECK(RunShell(daemon, "exit 4").code == 4);
}

}  // namespace agentmon
