#include "daemon/limits/resource_keeper.h"

#include <catch2/catch.hpp>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/limits/directory_fixture.h"
#include "tests/fake/fake_clock.h"
#include "tests/fake/fake_task_runner.h"

namespace agentmon {
namespace {

struct Fixture {
  Fixture() : keeper(*ResourceKeeper::Create(core, clock)) {
    Cpu(0, 0);
    directory.Write("memory.events", "low 0\nhigh 0\nmax 0\noom 0\noom_kill 0\n");
    directory.Write("pids.events", "max 0\n");
    directory.Write("memory.peak", "4096\n");
    directory.Write("cgroup.procs", "10\n11\n");
    directory.Write("io.stat", "8:0 rbytes=100 wbytes=20 rios=1 wios=1\n8:16 rbytes=1 wbytes=2\n");
  }
  SessionResources* Begin(const policy::ResourceLimits& limits, absl::Duration age = absl::ZeroDuration()) {
    SessionResources* resources =
        keeper->Begin("s1", directory.path(), age,
                      {[this](const v1::Limit& limit) { hits.push_back(limit); },
                       [this](const v1::Usage& usage) { snapshots.push_back(usage); },
                       [this](const std::string& reason) { expired.push_back(reason); }});
    keeper->SetLimits("s1", limits);
    return resources;
  }
  void Cpu(int64_t usec, int throttled) {
    directory.Write("cpu.stat", absl::StrCat("usage_usec ", usec, "\nnr_throttled ", throttled, "\n"));
  }
  void Advance(absl::Duration by) {
    clock.Advance(by);
    core.Advance(by);
    core.RunPosted();
  }
  void Advance(absl::Duration by, int times) {
    for (int i = 0; i < times; ++i) Advance(by);
  }

  DirectoryFixture directory;
  FakeTaskRunner core;
  FakeClock clock;
  std::unique_ptr<ResourceKeeper> keeper;
  std::vector<v1::Limit> hits;
  std::vector<v1::Usage> snapshots;
  std::vector<std::string> expired;
};

policy::ResourceLimits Limits(const std::function<void(policy::ResourceLimits&)>& set) {
  policy::ResourceLimits limits;
  set(limits);
  return limits;
}

}  // namespace

TEST_CASE("a session ends once its time is over, counted from its beginning, and not before") {
  Fixture f;
  f.Begin(Limits([](auto& l) { l.session_timeout = absl::Hours(2); }), absl::Hours(1));
  f.Advance(absl::Minutes(1), 59);
  CHECK(f.expired.empty());
  f.Advance(absl::Minutes(1), 2);
  CHECK(f.expired == std::vector<std::string>{"its session timeout of 2h was over"});
  REQUIRE(f.hits.size() == 1);
  CHECK(f.hits[0].resource() == "session_timeout");
  CHECK(f.hits[0].limit() == 7'200'000'000'000);
  f.Advance(absl::Hours(1), 3);
  CHECK(f.expired.size() == 1);
}

TEST_CASE("without a timeout a session goes on, and nothing wakes anybody") {
  Fixture f;
  f.Begin({});
  CHECK(f.core.timers() == 0);
  f.Advance(absl::Hours(1000));
  CHECK(f.expired.empty());
}

TEST_CASE("a session that does nothing ends after its idle timeout") {
  Fixture f;
  f.Begin(Limits([](auto& l) { l.idle_timeout = absl::Minutes(10); }));
  f.Advance(absl::Seconds(30), 19);
  CHECK(f.expired.empty());
  f.Advance(absl::Seconds(30), 2);
  CHECK(f.expired == std::vector<std::string>{"it was idle for 10m, its idle timeout"});
  CHECK(f.hits.at(0).resource() == "idle_timeout");
}

TEST_CASE("acts and processor time put the idle timeout off, a rare wake-up does not") {
  Fixture f;
  SessionResources* resources = f.Begin(Limits([](auto& l) { l.idle_timeout = absl::Minutes(10); }));
  for (int i = 0; i < 20; ++i) {  // 20 minutes of processor time without an event
    f.Cpu(1'000'000 * (i + 1), 0);
    f.Advance(absl::Minutes(1));
  }
  CHECK(f.expired.empty());
  f.keeper->OnAct(resources, f.clock.BootNs());
  f.Advance(absl::Minutes(1), 9);
  CHECK(f.expired.empty());
  for (int i = 0; i < 8; ++i) {
    f.Cpu(20'000'000 + 100 * i, 0);
    f.Advance(absl::Minutes(1));
  }
  CHECK(f.expired.size() == 1);
}

TEST_CASE("a hit is told at once, and more of them by their number at the end of a window") {
  Fixture f;
  f.Begin(Limits([](auto& l) {
    l.max_memory_mb = 1;
    l.pids_max = 3;
  }));
  f.directory.Write("memory.events", "max 5\noom_kill 1\n");
  f.core.MakeAllReadable();
  REQUIRE(f.hits.size() == 1);
  CHECK(f.hits[0].resource() == "memory");
  CHECK(f.hits[0].limit() == 1 << 20);
  CHECK(f.hits[0].hits() == 5);
  CHECK(f.hits[0].killed() == 1);
  for (int i = 1; i <= 50; ++i) {
    f.directory.Write("pids.events", absl::StrCat("max ", i, "\n"));
    f.core.MakeAllReadable();
  }
  CHECK(f.hits.size() == 1);
  f.Advance(absl::Seconds(11));
  REQUIRE(f.hits.size() == 2);
  CHECK(f.hits[1].resource() == "pids");
  CHECK(f.hits[1].hits() == 50);
  f.Advance(absl::Seconds(11), 2);
  CHECK(f.hits.size() == 2);
  f.directory.Write("pids.events", "max 51\n");  // the watch is there again
  f.core.MakeAllReadable();
  CHECK(f.hits.size() == 3);
}

TEST_CASE("hits of what the policy does not limit are not told") {
  Fixture f;
  f.Begin(Limits([](auto& l) { l.pids_max = 3; }));
  f.directory.Write("memory.events", "max 5\noom_kill 1\n");
  f.core.MakeAllReadable();
  CHECK(f.hits.empty());
}

TEST_CASE("what was counted before a daemon found the session is not told again") {
  Fixture f;
  f.directory.Write("pids.events", "max 7\n");
  f.Begin(Limits([](auto& l) { l.pids_max = 3; }), absl::Hours(1));
  CHECK(f.hits.empty());
  f.directory.Write("pids.events", "max 9\n");
  f.core.MakeAllReadable();
  REQUIRE(f.hits.size() == 1);
  CHECK(f.hits[0].hits() == 2);
}

TEST_CASE("a busy session has a snapshot a minute, one that rests none") {
  Fixture f;
  SessionResources* resources = f.Begin(Limits([](auto& l) { l.cpu_quota_percent = 50; }));
  f.keeper->OnAct(resources, f.clock.BootNs());
  for (int i = 0; i < 30; ++i) {
    f.keeper->OnAct(resources, f.clock.BootNs());
    f.Cpu(1'000'000 * (i + 1), i);
    f.Advance(absl::Seconds(10));
  }
  CHECK(f.snapshots.size() >= 4);
  CHECK(f.snapshots.size() <= 5);
  CHECK(f.snapshots[0].processes() == 2);
  CHECK(f.snapshots[0].read_bytes() == 101);
  CHECK(f.snapshots[0].written_bytes() == 22);
  CHECK(f.snapshots[0].memory_peak_bytes() == 4096);
  CHECK(f.hits.at(0).resource() == "cpu");
  const size_t before = f.snapshots.size();
  f.Advance(absl::Minutes(1), 5);
  CHECK(f.snapshots.size() <= before + 1);
  CHECK(f.core.timers() == 0);
}

TEST_CASE("what was read last is told when the directory is gone by the time of the end") {
  Fixture f;
  SessionResources* resources = f.Begin(Limits([](auto& l) {
    l.pids_max = 3;
    l.cpu_quota_percent = 20;
  }));
  f.directory.Write("pids.events", "max 2\n");
  f.Cpu(1500, 4);
  resources->Look();
  std::filesystem::remove_all(f.directory.path());
  const v1::Usage usage = f.keeper->End("s1");
  CHECK(usage.cpu_ns() == 1'500'000);
  CHECK(usage.memory_peak_bytes() == 4096);
  CHECK(usage.processes() == 0);
  REQUIRE(f.hits.size() == 2);
  CHECK(f.hits[0].hits() == 2);
  CHECK(f.hits[1].resource() == "cpu");
  CHECK(f.hits[1].hits() == 4);
}

TEST_CASE(
    "a quota that bound a short session is told although its directory went before it was known to be over") {
  Fixture f;
  f.Begin(Limits([](auto& l) { l.cpu_quota_percent = 20; }));
  f.Cpu(1500, 4);
  f.Advance(absl::Milliseconds(1100));
  CHECK(f.hits.empty());
  std::filesystem::remove_all(f.directory.path());
  f.keeper->End("s1");
  REQUIRE(f.hits.size() == 1);
  CHECK(f.hits[0].resource() == "cpu");
  CHECK(f.hits[0].hits() == 4);
}

TEST_CASE("a session with a quota is looked at less and less often") {
  Fixture f;
  f.Begin(Limits([](auto& l) { l.cpu_quota_percent = 20; }));
  CHECK(f.core.timers() == 1);
  f.Advance(absl::Seconds(1), 120);
  CHECK(f.core.timers() == 0);
}

TEST_CASE("what follows a hit is read while it is there, and told at the end") {
  Fixture f;
  f.Begin(Limits([](auto& l) { l.max_memory_mb = 1; }));
  f.directory.Write("memory.events", "max 3\noom_kill 0\n");
  f.core.MakeAllReadable();
  f.directory.Write("memory.events", "max 4\noom_kill 1\n");
  f.core.MakeAllReadable();
  CHECK(f.hits.size() == 1);
  std::filesystem::remove_all(f.directory.path());
  f.keeper->End("s1");
  REQUIRE(f.hits.size() == 2);
  CHECK(f.hits[1].hits() == 1);
  CHECK(f.hits[1].killed() == 1);
}

TEST_CASE("the end of a process is a moment to read, and what it used is known without any file") {
  Fixture f;
  SessionResources* resources = f.Begin(Limits([](auto& l) { l.max_memory_mb = 1; }));
  f.directory.Write("memory.events", "max 3\noom_kill 1\n");
  resources->OnExit(70'000'000, f.clock.BootNs());
  std::filesystem::remove_all(f.directory.path());
  resources->OnExit(30'000'000, f.clock.BootNs());
  const v1::Usage usage = f.keeper->End("s1");
  CHECK(usage.cpu_ns() == 100'000'000);
  CHECK(usage.memory_peak_bytes() == 4096);
  REQUIRE(f.hits.size() == 1);
  CHECK(f.hits[0].killed() == 1);
}

TEST_CASE("the end tells the last hits and what was used") {
  Fixture f;
  f.Begin(Limits([](auto& l) { l.pids_max = 3; }));
  f.directory.Write("pids.events", "max 2\n");
  f.Cpu(1500, 0);
  const v1::Usage usage = f.keeper->End("s1");
  CHECK(usage.cpu_ns() == 1'500'000);
  REQUIRE(f.hits.size() == 1);
  CHECK(f.hits[0].hits() == 2);
  f.core.MakeAllReadable();
  f.Advance(absl::Hours(1));
  CHECK(f.hits.size() == 1);
}

}  // namespace agentmon
