#include <sys/wait.h>
#include <unistd.h>

#include "daemon/probe/process_probe.h"
#include "tests/host/kernel_fixture.h"

namespace agentmon {
namespace {

struct Rig {
  TestCgroup base;
  TestCgroup session{base->path()};
  PollTaskRunner runner;
  EventCollector sink;
  std::unique_ptr<BpfRing> ring;
  std::unique_ptr<ProcessProbe> probe;

  Rig() {
    auto made = BpfRing::Create(base->fd(), runner);
    INFO(made.status());
    REQUIRE(made.ok());
    ring = *std::move(made);
    auto process = ProcessProbe::Create(*ring);
    INFO(process.status());
    REQUIRE(process.ok());
    probe = *std::move(process);
    REQUIRE(ring->AddSession(session->id()).ok());
    REQUIRE(probe->Attach(sink).ok());
  }
};

TEST_CASE("a program in a session is recorded with its arguments, directory and end") {
  Rig rig;
  const pid_t pid = RunIn(*rig.session, [] {
    if (chdir("/usr/bin") != 0) return 98;
    execl("/bin/sh", "sh", "-c", "exit 7", nullptr);
    return 97;
  });
  const int status = WaitFor(pid);
  REQUIRE(WEXITSTATUS(status) == 7);
  REQUIRE(rig.runner.RunUntil([&] { return rig.sink.Exited(pid); }));
  const std::vector<Event> execs = rig.sink.Of(v1::EXEC, pid);
  REQUIRE(execs.size() == 1);
  const Event& exec = execs[0];
  CHECK(exec.exe() == "/usr/bin/dash");
  CHECK(exec.exec().cwd() == "/usr/bin");
  CHECK(exec.exec().filename() == "/bin/sh");
  REQUIRE(exec.exec().argv_size() == 3);
  CHECK(exec.exec().argv(2) == "exit 7");
  CHECK(exec.parent().pid() == getpid());
  CHECK(exec.source() == v1::PROCESS);
  const Event exit = rig.sink.Of(v1::EXIT, pid).at(0);
  CHECK(exit.exit().status() == 7);
  CHECK(exit.exit().signal() == 0);
  CHECK(exit.exit().peak_rss_bytes() > 100'000);
  CHECK(exit.process().start_ns() == exec.process().start_ns());
  CHECK(rig.sink.malformed == 0);
}

}  // namespace
}  // namespace agentmon
