// agentmon-shim against a stand-in daemon: what the agent inherits, and what happens when something fails.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <thread>

#include <catch2/catch.hpp>

#include "common/base/unique_fd.h"
#include "common/kernel/landlock.h"
#include "common/kernel/pid_fd.h"
#include "common/kernel/seccomp_listener.h"
#include "tests/host/fake_sessions.h"
#include "tests/host/program.h"

namespace agentmon {
namespace {

// Serves one listener until nobody is left behind it; counts.
class Answerer {
 public:
  explicit Answerer(UniqueFd listener) : listener_(std::move(listener)), thread_([this] { Run(); }) {}
  ~Answerer() { thread_.join(); }
  int answered() const { return answered_; }

 private:
  void Run() {
    seccomp_notif request;
    pollfd fd{listener_.get(), POLLIN, 0};
    while (poll(&fd, 1, -1) > 0 && (fd.revents & POLLHUP) == 0) {
      if (ReceiveNotify(listener_.get(), &request) != ReceiveResult::kRequest) continue;
      ContinueNotify(listener_.get(), request.id);
      ++answered_;
    }
  }
  UniqueFd listener_;
  std::atomic<int> answered_{0};
  std::thread thread_;
};

// A daemon with a notify source, and the shim that talks to it.
struct Fixture {
  TempDir dir;
  FakeSessions daemon{dir / "sock"};
  std::atomic<pid_t> shim{0};
  std::atomic<bool> quiet_at_arm{false};  // nothing waited at the listener when Arm came
  std::unique_ptr<Answerer> answerer;

  Fixture() {
    daemon.on_attach = [](v1::AttachResponse* response) {
      response->set_notify(true);
      return grpc::Status::OK;
    };
    daemon.on_arm = [this](const v1::ArmRequest& request) { return TakeListener(request); };
  }

  grpc::Status TakeListener(const v1::ArmRequest& request) {
    if (request.notify_fd() < 0) return grpc::Status::OK;
    WaitFor([this] { return shim != 0; });
    auto process = PidFd::Open(shim);
    auto listener = process.ok() ? process->TakeFd(request.notify_fd()) : process.status();
    if (!listener.ok())
      return grpc::Status(grpc::StatusCode::INTERNAL, std::string(listener.status().message()));
    pollfd fd{listener->get(), POLLIN, 0};
    quiet_at_arm = poll(&fd, 1, 200) == 0;
    answerer = std::make_unique<Answerer>(std::move(*listener));
    return grpc::Status::OK;
  }

  ProgramResult Run(const std::vector<std::string>& command, ProgramOptions options = {}) {
    const int token = TokenPipe();
    options.started = [this, token](pid_t pid) {
      shim = pid;
      close(token);
    };
    return RunProgram(ShimCommand(ProgramPath("agentmon-shim"), dir / "sock", token, command), options);
  }
};

std::vector<std::string> Sh(const std::string& script) { return {"sh", "-c", script}; }

}  // namespace

TEST_CASE("the agent's status is the shim's, and its own failures are 126 and 127") {
  Fixture f;
  CHECK(f.Run(Sh("exit 0")).exit_status == 0);
  CHECK(f.Run(Sh("exit 77")).exit_status == 77);
  CHECK(f.Run(Sh("kill -9 $$")).signal == SIGKILL);
  CHECK(f.Run({"no-such-program"}).exit_status == 127);
  const ProgramResult missing = f.Run({"/no/such/program"});
  CHECK(missing.exit_status == 127);
  CHECK(missing.out.empty());
  CHECK(missing.err == "agentmon: /no/such/program: No such file or directory\n");

  std::ofstream(f.dir / "plain") << "not a program";
  CHECK(f.Run({f.dir / "plain"}).exit_status == 126);
  CHECK(f.Run({f.dir.path()}).exit_status == 126);
  std::ofstream(f.dir / "script") << "exit 9";
  chmod((f.dir / "script").c_str(), 0755);
  CHECK(f.Run({f.dir / "script"}).exit_status == 9);
}

TEST_CASE("nothing waits at the listener between filter and Arm, and calls of the agent arrive there") {
  Fixture f;
  const std::string file = f.dir / "made";
  const ProgramResult r = f.Run(Sh("mkdir '" + file + "' && rmdir '" + file + "' && echo done"));
  CHECK(r.exit_status == 0);
  CHECK(r.out == "done\n");
  CHECK(r.err.empty());
  CHECK(f.quiet_at_arm);
  REQUIRE(f.answerer != nullptr);
  CHECK(f.answerer->answered() >= 2);
  REQUIRE(f.daemon.attached().size() == 1);
  CHECK(f.daemon.attached()[0].token() == "token");
}

TEST_CASE("the agent inherits what it would have without the shim") {
  Fixture f;
  const auto script =
      Sh("ls /proc/self/fd; grep -E '^(Sig|Shd|Umask|Cap|Groups)' /proc/self/status | grep -v SigQ; umask; "
         "ulimit -a; env -u AGENTMON_SESSION;"
         "echo $PPID; cat /proc/self/oom_score_adj; cat /proc/self/timerslack_ns; ps -o pgid= -p $$; pwd");
  ProgramOptions options;
  options.in_child = [] {
    umask(027);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, nullptr);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGUSR2, SIG_IGN);
    setenv("LD_LIBRARY_PATH", "/nowhere", 1);
    setenv("GRPC_VERBOSITY", "debug", 1);
    setenv("GRPC_TRACE", "all", 1);
    setenv("ODD", "a=b\nc", 1);
    if (chdir("/usr/lib") != 0) _exit(201);
    const int fd = open("/etc/hostname", O_RDONLY);
    fcntl(fd, F_DUPFD, 50);
    close(fd);
  };
  const ProgramResult bare = RunProgram(script, options);
  const ProgramResult shimmed = f.Run(script, options);
  CHECK(bare.exit_status == 0);
  CHECK(bare.out.find("50\n") != std::string::npos);
  CHECK(bare.out == shimmed.out);
  CHECK(bare.err == shimmed.err);
  // Shells change their own mask.
  const std::vector<std::string> signals = {"grep", "-E", "^(Sig|Shd)(Pnd|Blk|Ign|Cgt)", "/proc/self/status"};
  const std::string mask = RunProgram(signals, options).out;
  CHECK(mask.find("SigBlk:\t0000000000000200") != std::string::npos);
  CHECK(f.Run(signals, options).out == mask);
}

TEST_CASE("standard descriptors that are closed stay closed and get no message") {
  Fixture f;
  const auto script = Sh("r=0; for i in 0 1 2; do [ -e /proc/$$/fd/$i ] && r=$((r+1)); done; exit $((40+r))");
  ProgramOptions options;
  options.in_child = [] { close(0), close(1), close(2); };
  CHECK(f.Run(script).exit_status == 43);
  CHECK(f.Run(script, options).exit_status == 40);
  CHECK(f.Run({"no-such-program"}, options).exit_status == 127);
}

TEST_CASE("without a daemon nothing runs and the status is 125") {
  TempDir dir;
  const int token = TokenPipe();
  const ProgramResult r =
      RunProgram(ShimCommand(ProgramPath("agentmon-shim"), dir / "none", token, {"touch", dir / "ran"}));
  close(token);
  CHECK(r.exit_status == 125);
  CHECK(r.out.empty());
  CHECK(r.err.find("agentmon: connect to ") == 0);
  CHECK(access((dir / "ran").c_str(), F_OK) != 0);
}

TEST_CASE("a refused Attach or Arm starts no agent") {
  Fixture f;
  const std::string ran = f.dir / "ran";
  f.daemon.on_arm = [](const v1::ArmRequest&) {
    return grpc::Status(grpc::StatusCode::INTERNAL, "no listener");
  };
  ProgramResult r = f.Run({"touch", ran});
  CHECK(r.exit_status == 125);
  CHECK(r.err == "agentmon: arm the session: no listener\n");
  f.daemon.on_attach = [](v1::AttachResponse*) {
    return grpc::Status(grpc::StatusCode::UNAUTHENTICATED, "unknown token");
  };
  r = f.Run({"touch", ran});
  CHECK(r.exit_status == 125);
  CHECK(r.err == "agentmon: join the session: unknown token\n");
  CHECK(access(ran.c_str(), F_OK) != 0);
}

// The plan refuses bpf and keeps signals in, and both are to be tried. Without a listener: the filter refuses
// by itself, where this daemon would let everything go on.
grpc::Status AnswerPlan(v1::AttachResponse* response) {
  response->set_notify(false);
  v1::ShimPlan& plan = *response->mutable_plan();
  plan.add_refuse_calls("bpf");
  plan.set_landlock_scope(LandlockAbi() >= kLandlockScopeAbi);
  v1::Canary* call = plan.add_canaries();
  call->set_act(v1::Canary::CALL);
  call->set_subject("bpf");
  if (plan.landlock_scope()) plan.add_canaries()->set_act(v1::Canary::SIGNAL);
  return grpc::Status::OK;
}

TEST_CASE("the daemon is told how the forbidden acts ended before the agent runs") {
  Fixture f;
  const std::string ran = f.dir / "ran";
  bool ran_before = true;
  f.daemon.on_attach = AnswerPlan;
  f.daemon.on_prove = [&](const v1::ProveRequest&) {
    ran_before = access(ran.c_str(), F_OK) == 0;
    return grpc::Status::OK;
  };
  CHECK(f.Run({"touch", ran}).exit_status == 0);
  CHECK_FALSE(ran_before);
  CHECK(access(ran.c_str(), F_OK) == 0);
  const std::vector<v1::ProveRequest> proven = f.daemon.proven();
  REQUIRE(proven.size() == 1);
  CHECK(proven[0].token() == "token");
  CHECK(proven[0].results_size() == (LandlockAbi() >= kLandlockScopeAbi ? 2 : 1));
  for (const auto& result : proven[0].results()) CHECK(result.error() == EPERM);
}

TEST_CASE("a refused proof, and a plan that the shim does not know, start no agent") {
  Fixture f;
  const std::string ran = f.dir / "ran";
  f.daemon.on_attach = AnswerPlan;
  f.daemon.on_prove = [](const v1::ProveRequest&) {
    return grpc::Status(grpc::StatusCode::FAILED_PRECONDITION, "it does not hold");
  };
  ProgramResult r = f.Run({"touch", ran});
  CHECK(r.exit_status == 125);
  CHECK(r.err == "agentmon: prove the session's controls: it does not hold\n");
  f.daemon.on_attach = [](v1::AttachResponse* response) {
    response->mutable_plan()->add_refuse_calls("telepathy");
    return grpc::Status::OK;
  };
  r = f.Run({"touch", ran});
  CHECK(r.exit_status == 125);
  CHECK(r.err.find("telepathy") != std::string::npos);
  CHECK(access(ran.c_str(), F_OK) != 0);
}

// The control is every other run here, in which the agent can gain nothing.
TEST_CASE("an agent may gain privileges where the plan says so, and no filter is laid on it then") {
  Fixture f;
  const std::string words = "grep -E '^(NoNewPrivs|Seccomp):' /proc/self/status | tr -d '\n\t'";
  const auto answer = [](bool keep, const char* call) {
    return [keep, call](v1::AttachResponse* response) {
      response->set_notify(false);
      response->mutable_plan()->set_keep_privileges(keep);
      if (call != nullptr) response->mutable_plan()->add_refuse_calls(call);
      return grpc::Status::OK;
    };
  };
  f.daemon.on_attach = answer(true, nullptr);
  CHECK(f.Run({"sh", "-c", words}).out == "NoNewPrivs:0Seccomp:0");
  f.daemon.on_attach = answer(false, "bpf");
  CHECK(f.Run({"sh", "-c", words}).out == "NoNewPrivs:1Seccomp:2");
  f.daemon.on_attach = answer(true, "bpf");
  const ProgramResult r = f.Run({"sh", "-c", words});
  CHECK(r.exit_status == 125);
  CHECK(r.out.empty());
  CHECK(r.err.find("privileges kept and calls filtered") != std::string::npos);
}

TEST_CASE("a forbidden act that nobody answers ends the run after 5 seconds") {
  Fixture f;
  const std::string ran = f.dir / "ran";
  UniqueFd held;  // nobody reads it
  f.daemon.on_attach = [](v1::AttachResponse* response) {
    response->set_notify(true);
    v1::Canary* canary = response->mutable_plan()->add_canaries();
    canary->set_act(v1::Canary::UNLINK);
    canary->set_subject("/nonexistent");
    return grpc::Status::OK;
  };
  f.daemon.on_arm = [&](const v1::ArmRequest& request) {
    WaitFor([&] { return f.shim != 0; });
    auto process = PidFd::Open(f.shim);
    if (process.ok()) held = std::move(*process->TakeFd(request.notify_fd()));
    return grpc::Status::OK;
  };
  f.daemon.on_prove = [](const v1::ProveRequest&) { return grpc::Status::OK; };
  const ProgramResult r = f.Run({"touch", ran});
  CHECK(r.exit_status == 125);
  CHECK(r.err.find("agentmon: the session's controls could not be tried in time") == 0);
  CHECK(f.daemon.proven().empty());
  CHECK(access(ran.c_str(), F_OK) != 0);
}

TEST_CASE("a daemon that dies between Attach and Arm starts no agent") {
  TempDir dir;
  const pid_t daemon = fork();
  if (daemon == 0) {
    FakeSessions sessions(dir / "sock");
    sessions.on_attach = [](v1::AttachResponse* response) {
      response->set_notify(true);
      return grpc::Status::OK;
    };
    sessions.on_arm = [](const v1::ArmRequest&) -> grpc::Status {
      kill(getpid(), SIGKILL);
      for (;;) pause();
    };
    for (;;) pause();
  }
  REQUIRE(WaitFor([&] { return access((dir / "sock").c_str(), F_OK) == 0; }));
  const int token = TokenPipe();
  const ProgramResult r =
      RunProgram(ShimCommand(ProgramPath("agentmon-shim"), dir / "sock", token, {"touch", dir / "ran"}));
  close(token);
  kill(daemon, SIGKILL);
  waitpid(daemon, nullptr, 0);
  CHECK(r.exit_status == 125);
  CHECK(r.out.empty());
  CHECK(access((dir / "ran").c_str(), F_OK) != 0);
}

TEST_CASE(
    "inside a session that has a listener the inner agent runs and the daemon is told why it has none") {
  Fixture f;
  FakeSessions inner(f.dir / "inner");
  inner.on_attach = [](v1::AttachResponse* response) {
    response->set_notify(true);
    return grpc::Status::OK;
  };
  const ProgramResult r = f.Run(Sh("printf t | { exec 9<&0; exec " + ProgramPath("agentmon-shim") +
                                   " --socket " + (f.dir / "inner") + " --token-fd 9 -- echo inner; }"));
  CHECK(r.exit_status == 0);
  CHECK(r.out == "inner\n");
  REQUIRE(inner.armed().size() == 1);
  CHECK(inner.armed()[0].notify_fd() == -1);
  CHECK(inner.armed()[0].notify_error().find("EBUSY") != std::string::npos);
  CHECK(f.daemon.armed()[0].notify_fd() >= 0);
}

TEST_CASE("where no notify source is wanted the agent has no filter") {
  Fixture f;
  const auto script = Sh("grep ^Seccomp: /proc/self/status");
  CHECK(f.Run(script).out == "Seccomp:\t2\n");
  f.daemon.on_attach = nullptr;
  CHECK(f.Run(script).out == "Seccomp:\t0\n");
}

}  // namespace agentmon
