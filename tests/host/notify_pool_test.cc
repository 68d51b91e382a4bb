// The threads that serve listeners: hanging, handing over, going.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>

#include <catch2/catch.hpp>

#include "absl/synchronization/notification.h"
#include "common/kernel/seccomp_listener.h"
#include "common/policy/testing/snapshots.h"
#include "daemon/probe/notify_pool.h"
#include "tests/host/filtered_child.h"
#include "tests/host/program.h"

namespace agentmon {
namespace {

struct Behaviour {
  std::function<void(const Listener&)> capture = [](const Listener&) {};
  std::atomic<int> finished{0};
  std::atomic<int> lost{0};
};

class ScriptedServer : public NotifyServer {
 public:
  explicit ScriptedServer(std::shared_ptr<Behaviour> behaviour) : behaviour_(std::move(behaviour)) {}
  NotifyAnswer Capture(const Listener& listener, const seccomp_notif&) override {
    behaviour_->capture(listener);
    return {};
  }
  void Finish(const Listener&) override { ++behaviour_->finished; }
  void Lost() override { ++behaviour_->lost; }

 private:
  std::shared_ptr<Behaviour> behaviour_;
};

std::unique_ptr<NotifyPool> StartPool(const std::shared_ptr<Behaviour>& behaviour, int lanes = 1) {
  NotifyPool::Options options;
  options.lanes = lanes;
  options.make_server = [behaviour] { return std::make_unique<ScriptedServer>(behaviour); };
  auto pool = NotifyPool::Start(std::move(options));
  REQUIRE(pool.ok());
  return std::move(*pool);
}

// `calls` times a mediated call that fails; 0 when every one failed as it should.
std::function<int()> Calls(int calls) {
  return [calls] {
    for (int i = 0; i < calls; ++i) {
      if (rmdir("/no/such/directory") != -1 || errno != ENOENT) return 1;
    }
    return 0;
  };
}

}  // namespace

TEST_CASE("a thread that hangs is answered for, and its lane goes on with another") {
  auto behaviour = std::make_shared<Behaviour>();
  absl::Notification release;
  std::atomic<int> captured{0};
  behaviour->capture = [&](const Listener& listener) {
    ++captured;
    if (listener.cgroup_id == 1) release.WaitForNotification();
  };
  auto pool = StartPool(behaviour);  // one lane: both sessions share it
  FilteredChild bad(Calls(1));
  FilteredChild good(Calls(100));
  REQUIRE(pool->Add(1, bad.TakeListener()).ok());
  REQUIRE(pool->Add(2, good.TakeListener()).ok());
  bad.Go();
  REQUIRE(WaitFor([&] { return captured == 1; }));
  good.Go();
  CHECK(bad.Wait(5) == 0);
  CHECK(good.Wait(5) == 0);
  release.Notify();
}

TEST_CASE("a session that keeps making threads hang is answered unread, and the loss is counted") {
  auto behaviour = std::make_shared<Behaviour>();
  absl::Notification release;
  behaviour->capture = [&](const Listener&) { release.WaitForNotification(); };
  auto pool = StartPool(behaviour);
  FilteredChild bad(Calls(50));
  REQUIRE(pool->Add(1, bad.TakeListener()).ok());
  bad.Go();
  CHECK(bad.Wait(10) == 0);
  CHECK(WaitFor([&] { return behaviour->lost == 50 - NotifyPool::kStuckNothing; }));
  release.Notify();
  CHECK(WaitFor([&] { return behaviour->finished == NotifyPool::kStuckNothing; }));
}

TEST_CASE("where calls may be stopped a session has only so many threads that hang, and others go on") {
  auto behaviour = std::make_shared<Behaviour>();
  absl::Notification release;
  behaviour->capture = [&](const Listener& listener) {
    if (listener.cgroup_id == 1) release.WaitForNotification();
  };
  auto pool = StartPool(behaviour);
  constexpr int kCallers = NotifyPool::kHungMost + 4;
  FilteredChild bad([] {
    std::vector<pid_t> callers;
    for (int i = 0; i < kCallers; ++i) {
      callers.push_back(fork());
      if (callers.back() == 0) {
        rmdir("/no/such/directory");
        _exit(errno == EAGAIN ? 2 : 3);
      }
    }
    int refused = 0;
    for (const pid_t caller : callers) {
      int status = 0;
      waitpid(caller, &status, 0);
      refused += WEXITSTATUS(status) == 2;
    }
    return refused;
  });
  FilteredChild good(Calls(100));
  const auto current = std::make_shared<policy::CurrentSnapshot>(
      policy::MakeBase("posture: enforce\ndefaults: {command: deny}\n"));
  REQUIRE(pool->Add(1, bad.TakeListener(), std::make_shared<Gate>(current, std::vector<gid_t>())).ok());
  REQUIRE(pool->Add(2, good.TakeListener()).ok());
  bad.Go();
  CHECK(WaitFor([&] { return behaviour->lost == kCallers - NotifyPool::kHungMost; }));
  good.Go();
  CHECK(good.Wait(10) == 0);
  release.Notify();
  CHECK(bad.Wait(10) == kCallers - NotifyPool::kHungMost);
}

TEST_CASE("a server that throws costs the record, not the call") {
  auto behaviour = std::make_shared<Behaviour>();
  behaviour->capture = [](const Listener&) { throw std::bad_alloc(); };
  auto pool = StartPool(behaviour);
  FilteredChild child(Calls(20));
  REQUIRE(pool->Add(1, child.TakeListener()).ok());
  child.Go();
  CHECK(child.Wait(5) == 0);
  CHECK(WaitFor([&] { return behaviour->lost == 20; }));
}

TEST_CASE("a listener goes with its last process, and one cgroup has one listener") {
  auto behaviour = std::make_shared<Behaviour>();
  auto pool = StartPool(behaviour);
  FilteredChild child(Calls(1));
  FilteredChild second(Calls(1));
  REQUIRE(pool->Add(1, child.TakeListener()).ok());
  CHECK(pool->Add(1, second.TakeListener()).code() == absl::StatusCode::kAlreadyExists);
  child.Go();
  CHECK(child.Wait(5) == 0);
  CHECK(WaitFor([&] { return pool->listeners() == 0; }));
}

TEST_CASE("a listener whose end is seen while somebody else holds it is left alone") {
  auto behaviour = std::make_shared<Behaviour>();
  auto pool = StartPool(behaviour);
  FilteredChild child(Calls(1));
  UniqueFd listener = child.TakeListener();
  const UniqueFd held(fcntl(listener.get(), F_DUPFD_CLOEXEC, 3));
  const absl::Status added = pool->Add(1, std::move(listener));
  REQUIRE(added.ok());
  child.Go();
  CHECK(child.Wait(5) == 0);
  REQUIRE(WaitFor([&] { return pool->listeners() == 0; }));
  // A thread that is woken by it again and again would use up the processor.
  const auto cpu_ms = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000 +
           (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1000;
  };
  const auto before = cpu_ms();
  poll(nullptr, 0, 300);
  CHECK(cpu_ms() - before < 100);
}

TEST_CASE("a thread whose request another reader took is called back, and its lane goes on") {
  auto behaviour = std::make_shared<Behaviour>();
  auto pool = StartPool(behaviour);  // one lane: both sessions share it
  FilteredChild contended(Calls(2000));
  FilteredChild other(Calls(2000));
  UniqueFd listener = contended.TakeListener();
  const int stolen = listener.get();
  const pid_t thief = fork();
  if (thief == 0) {
    for (;;) {
      seccomp_notif request;
      pollfd readable{stolen, POLLIN, 0};
      if (poll(&readable, 1, -1) == 1 && ReceiveNotify(stolen, &request) == ReceiveResult::kRequest) {
        ContinueNotify(stolen, request.id);
      }
    }
  }
  const absl::Status added = pool->Add(1, std::move(listener));
  REQUIRE(added.ok());
  REQUIRE(pool->Add(2, other.TakeListener()).ok());
  contended.Go();
  other.Go();
  CHECK(contended.Wait(20) == 0);
  CHECK(other.Wait(20) == 0);
  kill(thief, SIGKILL);
  waitpid(thief, nullptr, 0);
}

TEST_CASE("a pool with a hanging thread goes without waiting for it") {
  auto behaviour = std::make_shared<Behaviour>();
  auto release = std::make_shared<absl::Notification>();
  auto hung = std::make_shared<std::atomic<bool>>(false);
  behaviour->capture = [release, hung](const Listener&) {
    *hung = true;
    release->WaitForNotification();
  };
  auto pool = StartPool(behaviour);
  FilteredChild child(Calls(1));
  REQUIRE(pool->Add(1, child.TakeListener()).ok());
  child.Go();
  REQUIRE(WaitFor([&] { return hung->load(); }));
  CHECK(child.Wait(5) == 0);
  const auto before = std::chrono::steady_clock::now();
  pool.reset();
  CHECK(std::chrono::steady_clock::now() - before < std::chrono::seconds(5));
  release->Notify();
  CHECK(WaitFor([&] { return behaviour->finished == 1; }));
}

TEST_CASE("sixty sessions share two lanes") {
  auto behaviour = std::make_shared<Behaviour>();
  auto pool = StartPool(behaviour, 2);
  std::vector<std::unique_ptr<FilteredChild>> children;
  for (uint64_t i = 1; i <= 60; ++i) {
    children.push_back(std::make_unique<FilteredChild>(Calls(100)));
    REQUIRE(pool->Add(i, children.back()->TakeListener()).ok());
  }
  for (auto& child : children) child->Go();
  for (auto& child : children) CHECK(child->Wait() == 0);
  CHECK(WaitFor([&] { return behaviour->finished == 6000; }));
  CHECK(WaitFor([&] { return pool->listeners() == 0; }));
}

}  // namespace agentmon
