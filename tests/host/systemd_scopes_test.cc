// SystemdScopes against a service manager that a test plays.
#include "daemon/session/systemd_scopes.h"

#include <catch2/catch.hpp>
#include <functional>
#include <optional>

#include "daemon/app/event_loop.h"
#include "tests/fake/fake_systemd.h"

namespace agentmon {
namespace {

struct Fixture {
  explicit Fixture(bool is_reachable = true)
      : reachable(is_reachable),
        loop(*EventLoop::Create()),
        systemd(loop->event()),
        scopes(*loop, loop->event(),
               [this](sd_bus** bus) { return reachable ? systemd.Open(bus) : -ENOENT; }) {}

  bool Until(const std::function<bool()>& condition) {
    const absl::Time deadline = absl::Now() + absl::Seconds(20);
    while (!condition()) {
      if (absl::Now() > deadline) return false;
      loop->RunOnce(absl::Milliseconds(100));
    }
    return true;
  }
  absl::Status Start(const ScopeRequest& request) {
    std::optional<absl::Status> answer;
    scopes.Start(request, [&](absl::Status status) { answer = std::move(status); });
    REQUIRE(Until([&] { return answer.has_value(); }));
    return *answer;
  }

  bool reachable;
  std::unique_ptr<EventLoop> loop;
  FakeSystemd systemd;
  SystemdScopes scopes;
};

ScopeRequest Request() {
  ScopeRequest request;
  request.unit = "agentmon-s1.scope";
  request.slice = "user-1000.slice";
  request.description = "agentmon session s1";
  request.pid = 77;
  request.limits.max_memory_mb = 100;
  request.limits.cpu_quota_percent = 150;
  request.limits.pids_max = 20;
  request.limits.disk_read_bps_max = 5000;
  request.disks = {"8:0"};
  return request;
}

}  // namespace

TEST_CASE(
    "a scope is asked for with its slice, its first process and its limits, and is there once the job is "
    "done") {
  Fixture f;
  CHECK(f.Start(Request()).ok());
  REQUIRE(f.systemd.started.size() == 1);
  const FakeSystemd::Unit& unit = f.systemd.started[0];
  CHECK(unit.name == "agentmon-s1.scope");
  CHECK(unit.texts.at("Slice") == "user-1000.slice");
  CHECK(unit.texts.at("CollectMode") == "inactive-or-failed");
  CHECK(unit.texts.at("Description") == "agentmon session s1");
  CHECK(unit.pids == std::vector<uint32_t>{77});
  CHECK(unit.numbers.at("MemoryMax") == 100 << 20);
  CHECK(unit.numbers.at("MemorySwapMax") == UINT64_MAX);
  CHECK(unit.numbers.at("CPUQuotaPerSecUSec") == 1'500'000);
  CHECK(unit.numbers.at("TasksMax") == 20);
  CHECK(unit.numbers.at("IOReadBandwidthMax /dev/block/8:0") == 5000);
  CHECK(f.scopes.problem().empty());
}

TEST_CASE("without limits the manager's own default for tasks does not hold either") {
  Fixture f;
  ScopeRequest request = Request();
  request.limits = {};
  CHECK(f.Start(request).ok());
  CHECK(f.systemd.started.at(0).numbers.at("TasksMax") == UINT64_MAX);
  CHECK(f.systemd.started.at(0).numbers.count("IOReadBandwidthMax /dev/block/8:0") == 0);
}

TEST_CASE("what the manager refuses may be made in another way, a job that fails may not") {
  Fixture f;
  f.systemd.refusal = "org.freedesktop.DBus.Error.AccessDenied";
  CHECK(absl::IsUnavailable(f.Start(Request())));
  f.systemd.refusal.clear();
  f.systemd.result = "failed";
  const absl::Status failed = f.Start(Request());
  CHECK(absl::IsAborted(failed));
  CHECK(failed.message() == "systemd did not make agentmon-s1.scope: failed");
}

TEST_CASE("a bus that is not there is said once it is needed, and another way may be gone") {
  Fixture f(false);
  CHECK(absl::IsUnavailable(f.Start(Request())));
  CHECK(f.scopes.problem().substr(0, 20) == "open the system bus:");
}

TEST_CASE("a bus that is lost while a scope is made leaves it open whether there is one") {
  Fixture f;
  f.systemd.answers = false;
  std::optional<absl::Status> answer;
  f.scopes.Start(Request(), [&](absl::Status status) { answer = std::move(status); });
  REQUIRE(f.Until([&] { return !f.systemd.started.empty(); }));
  f.systemd.HangUp();
  REQUIRE(f.Until([&] { return answer.has_value(); }));
  CHECK_FALSE(answer->ok());
  CHECK_FALSE(absl::IsUnavailable(*answer));
  CHECK(f.Until([&] { return !f.scopes.problem().empty(); }));
}

TEST_CASE("new limits reach the unit, and those that are gone are lifted") {
  Fixture f;
  CHECK(f.Start(Request()).ok());
  policy::ResourceLimits limits;
  limits.pids_max = 9;
  f.scopes.SetLimits("agentmon-s1.scope", limits, {"8:0"});
  REQUIRE(f.Until([&] { return !f.systemd.changed.empty(); }));
  CHECK(f.systemd.changed[0].name == "agentmon-s1.scope");
  CHECK(f.systemd.changed[0].numbers.at("TasksMax") == 9);
  CHECK(f.systemd.changed[0].numbers.at("MemoryMax") == UINT64_MAX);
}

TEST_CASE("limits that the manager could not be told reach it once it is there again") {
  Fixture f(false);
  policy::ResourceLimits limits;
  limits.pids_max = 50;
  f.scopes.SetLimits("agentmon-s1.scope", limits, {});
  limits.pids_max = 9;
  f.scopes.SetLimits("agentmon-s1.scope", limits, {});
  CHECK(f.systemd.changed.empty());
  f.reachable = true;
  REQUIRE(f.Until([&] { return !f.systemd.changed.empty(); }));
  CHECK(f.systemd.changed[0].name == "agentmon-s1.scope");
  CHECK(f.systemd.changed[0].numbers.at("TasksMax") == 9);
}

}  // namespace agentmon
