#include <fcntl.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <set>
#include <thread>

#include "tests/host/kernel_process_rig.h"

namespace agentmon {
namespace {

// What the storm did, counted by itself in memory that its processes share.
struct Tally {
  std::atomic<int> forks, execs;
};

[[noreturn]] void ExecTrue(Tally* tally) {
  ++tally->execs;
  execv("/bin/true", kTrue);
  _exit(97);
}

void DoubleFork(Tally* tally) {
  ++tally->forks;
  const pid_t middle = fork();
  if (middle == 0) {
    setsid();
    ++tally->forks;
    if (fork() == 0) ExecTrue(tally);
    _exit(0);
  }
  WaitFor(middle);
}

void VforkExec(Tally* tally) {
  ++tally->forks;
  ++tally->execs;
  const pid_t pid = vfork();
  if (pid == 0) {
    execv("/bin/true", kTrue);
    _exit(97);
  }
  WaitFor(pid);
}

void Spawn(Tally* tally) {
  ++tally->forks;
  ++tally->execs;
  pid_t pid;
  if (posix_spawn(&pid, "/bin/true", nullptr, nullptr, kTrue, environ) == 0) WaitFor(pid);
}

void ThreadExec(Tally* tally) {
  ++tally->forks;
  const pid_t pid = fork();
  if (pid == 0) {
    std::thread([tally] { ExecTrue(tally); }).join();
    _exit(97);
  }
  WaitFor(pid);
}

void SubCgroupExec(Tally* tally, const std::string& sub) {
  ++tally->forks;
  const pid_t pid = fork();
  if (pid == 0) {
    const int fd = open((sub + "/cgroup.procs").c_str(), O_WRONLY | O_CLOEXEC);
    if (write(fd, "0", 1) != 1) _exit(96);
    ExecTrue(tally);
  }
  WaitFor(pid);
}

TEST_CASE("a storm of 2,000 short processes is recorded to the last one") {
  ProcessRig rig;
  Tally* tally = static_cast<Tally*>(
      mmap(nullptr, sizeof(Tally), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  const std::string sub = rig.session->path() + "/sub";
  REQUIRE(mkdir(sub.c_str(), 0755) == 0);
  std::vector<pid_t> starters;
  for (int i = 0; i < 2; ++i) {
    starters.push_back(RunIn(*rig.session, [&] {
      for (int round = 0; round < 167; ++round) {
        DoubleFork(tally);
        VforkExec(tally);
        Spawn(tally);
        ThreadExec(tally);
        SubCgroupExec(tally, sub);
      }
      return 0;
    }));
  }
  // A neighbour outside does the same and must not be counted.
  Tally* other = static_cast<Tally*>(
      mmap(nullptr, sizeof(Tally), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  for (int i = 0; i < 100; ++i) Spawn(other);
  for (pid_t pid : starters) CHECK(WaitFor(pid) == 0);
  REQUIRE(rig.runner.RunUntil([&] { return !*rig.session->Populated(); }, absl::Seconds(60)));
  const size_t forks = static_cast<size_t>(tally->forks), execs = static_cast<size_t>(tally->execs);
  rig.runner.RunUntil([&] { return rig.sink.Count(v1::EXIT) >= forks + starters.size(); }, absl::Seconds(5));
  rig.ring->Drain();
  CHECK(forks == 2 * 167 * 6);
  CHECK(rig.sink.Count(v1::FORK) == forks);
  CHECK(rig.sink.Count(v1::EXEC) == execs);
  CHECK(rig.sink.Count(v1::EXIT) == forks + starters.size());
  CHECK(rig.probe->Stats().lost == 0);
  CHECK(rig.probe->Stats().records == rig.sink.events.size());
  CHECK(rig.sink.malformed == 0);
  std::set<std::pair<int, uint64_t>> born, ended;
  for (const Decoded& d : rig.sink.events) {
    CHECK(d.cgroup_id == rig.session->id());
    const Event& e = d.event;
    if (e.kind() == v1::FORK) born.emplace(e.fork().child().pid(), e.fork().child().start_ns());
    if (e.kind() == v1::EXIT) ended.emplace(e.process().pid(), e.process().start_ns());
  }
  CHECK(born.size() == forks);
  CHECK(ended.size() == forks + starters.size());
  CHECK(std::includes(ended.begin(), ended.end(), born.begin(), born.end()));
  munmap(tally, sizeof(Tally));
  munmap(other, sizeof(Tally));
}

TEST_CASE("a busy session does not wake the consumer once per record") {
  ProcessRig rig;
  const int before = rig.runner.wakes();
  const pid_t pid = RunIn(*rig.session, [] {
    Tally tally{};
    for (int i = 0; i < 300; ++i) Spawn(&tally);
    return 0;
  });
  REQUIRE(rig.runner.RunUntil([&] { return rig.sink.Exited(pid); }, absl::Seconds(60)));
  WaitFor(pid);
  CHECK(rig.sink.events.size() == 901);
  CHECK(rig.runner.wakes() - before < 450);
}

TEST_CASE("the ring goes round without damage") {
  ProcessRig rig;
  constexpr int kPrograms = 300;  // 20 MB of arguments
  const pid_t pid = RunIn(*rig.session, [] {
    for (int i = 0; i < kPrograms; ++i) {
      const pid_t child = fork();
      if (child == 0) _exit(ExecWithArgumentBytes(static_cast<size_t>(60'000 + i)));
      WaitFor(child);
    }
    return 0;
  });
  REQUIRE(rig.runner.RunUntil([&] { return rig.sink.Exited(pid); }, absl::Seconds(60)));
  WaitFor(pid);
  CHECK(rig.probe->Stats().lost == 0);
  CHECK(rig.sink.malformed == 0);
  const std::vector<Event> execs = rig.sink.Of(v1::EXEC);
  REQUIRE(execs.size() == kPrograms);
  for (int i = 0; i < kPrograms; ++i) {
    const v1::Exec& exec = execs[static_cast<size_t>(i)].exec();
    REQUIRE(exec.argv_bytes() == static_cast<uint32_t>(60'000 + i));
    size_t bytes = 0;
    for (const std::string& arg : exec.argv()) bytes += arg.size() + 1;
    REQUIRE(bytes == exec.argv_bytes());
    REQUIRE(exec.argv(1) == std::string(9'999, 'a'));
  }
}

TEST_CASE("what does not fit into the ring is counted to the last record") {
  ProcessRig rig;
  constexpr uint64_t kForks = 400;
  // Nobody reads: 64 KiB of arguments each fill 8 MiB with 130 programs.
  const pid_t pid = RunIn(*rig.session, [] {
    for (uint64_t i = 0; i < kForks; ++i) {
      const pid_t child = fork();
      if (child == 0) _exit(ExecWithArgumentBytes(AM_ARGV_MAX));
      WaitFor(child);
    }
    return 0;
  });
  WaitFor(pid);
  rig.ring->Drain();
  const ProbeStats stats = rig.probe->Stats();
  CHECK(stats.lost > 100);
  CHECK(stats.records == rig.sink.events.size());
  CHECK(stats.records + stats.lost == 3 * kForks + 1);
  CHECK(rig.sink.Count(v1::EXEC) + rig.ring->Lost(AM_EXEC) == kForks);
  CHECK(rig.sink.malformed == 0);
}

}  // namespace
}  // namespace agentmon
