#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <set>

#include "tests/host/kernel_process_rig.h"

namespace agentmon {
namespace {

// Everything that a tree forks has the process group of its root: the test's own count of who
// belongs. The members live until they are killed; the alarm is for a test that dies.
[[noreturn]] void Member() {
  alarm(120);
  while (true) pause();
}

void ForkMember() {
  if (fork() == 0) Member();
}

void ForkOrphan() {
  const pid_t middle = fork();
  if (middle == 0) {
    ForkMember();
    ForkMember();
    _exit(0);
  }
  WaitFor(middle);
}

bool Readable(int fd, int timeout_ms) {
  pollfd p{fd, POLLIN, 0};
  return poll(&p, 1, timeout_ms) == 1;
}

class ForkingTree {
 public:
  ForkingTree() {
    REQUIRE(pipe2(go_, O_CLOEXEC) == 0);
    REQUIRE(pipe2(stop_, O_CLOEXEC) == 0);
    REQUIRE(pipe2(ready_, O_CLOEXEC) == 0);
    pid_ = fork();
    if (pid_ == 0) Run();
    char byte;
    REQUIRE(read(ready_[0], &byte, 1) == 1);
  }
  ~ForkingTree() {
    Stop();
    kill(-pid_, SIGKILL);
    WaitFor(pid_);
    for (int* p : {go_, stop_, ready_}) {
      close(p[0]);
      close(p[1]);
    }
  }
  // From now on as fast as it can, with orphans.
  void Storm() { REQUIRE(write(go_[1], "g", 1) == 1); }
  // Returns when the root forks no more.
  void Stop() {
    if (stopped_) return;
    stopped_ = true;
    char byte;
    REQUIRE(write(stop_[1], "s", 1) == 1);
    REQUIRE(read(ready_[0], &byte, 1) == 1);
  }
  pid_t pid() const { return pid_; }

 private:
  [[noreturn]] void Run() {
    setpgid(0, 0);
    alarm(120);
    for (int i = 0; i < 15; ++i) {
      if (fork() == 0) {
        ForkMember();
        Member();
      }
    }
    if (write(ready_[1], "r", 1) != 1) _exit(1);
    while (!Readable(stop_[0], 0)) Readable(go_[0], 2) ? ForkOrphan() : ForkMember();
    if (write(ready_[1], "r", 1) != 1) _exit(1);
    Member();
  }

  int go_[2], stop_[2], ready_[2];
  pid_t pid_ = -1;
  bool stopped_ = false;
};

std::set<pid_t> GroupMembers(const ProcessProbe& probe, pid_t group) {
  std::set<pid_t> members;
  const std::vector<am_task> tasks = *probe.ListTasks();
  for (const am_task& task : tasks) {
    const pid_t pid = static_cast<pid_t>(task.key.pid);
    if (task.alive != 0 && getpgid(pid) == group) members.insert(pid);
  }
  return members;
}

std::set<pid_t> SessionMembers(const ProcessRig& rig) {
  std::set<pid_t> members;
  const std::vector<SeedProcess> seeds = *rig.probe->ListSessionProcesses();
  for (const SeedProcess& seed : seeds) members.insert(seed.key.pid);
  return members;
}

TEST_CASE("a tree that forks and loses parents is taken in to the last process, and nobody else") {
  ProcessRig rig;
  ForkingTree neighbour;  // goes on forking outside
  neighbour.Storm();
  for (int round = 0; round < 25; ++round) {
    ForkingTree tree;
    int moves = 0;
    auto taken = rig.probe->CollectTree(tree.pid(), [&](pid_t pid) {
      if (moves++ == 0) tree.Storm();  // the hooks are on: from here on nobody may be missed
      return rig.session->AddProcess(pid);
    });
    INFO(taken.status());
    REQUIRE(taken.ok());
    CHECK(taken->size() >= 16);  // the root and its children; the others may be born inside
    tree.Stop();
    // A process in the middle of its birth is shown in no session yet: the two become equal, or never.
    const bool complete = rig.runner.RunUntil(
        [&] { return GroupMembers(*rig.probe, tree.pid()) == SessionMembers(rig); }, absl::Seconds(3));
    CHECK(complete);
    REQUIRE(rig.session->Kill().ok());
    REQUIRE(rig.runner.RunUntil([&] { return !*rig.session->Populated(); }));
  }
}

TEST_CASE("a watched tree stays where it is and its records carry its number") {
  ProcessRig rig;
  ForkingTree tree;
  auto members = rig.probe->Watch(tree.pid(), 7);
  REQUIRE(members.ok());
  const std::vector<SeedProcess> seeds = *rig.probe->ListSessionProcesses();
  CHECK(seeds.size() >= members->size());  // they fork meanwhile
  for (const SeedProcess& seed : seeds) CHECK(seed.cgroup_id == (AM_WATCHED | 7));
  tree.Storm();
  REQUIRE(rig.runner.RunUntil([&] { return rig.sink.Count(v1::FORK) > 50; }));
  tree.Stop();
  rig.ring->Drain();
  std::set<pid_t> known;
  for (const ProcessKey& key : *members) known.insert(key.pid);
  for (const Decoded& d : rig.sink.events) {
    CHECK(d.cgroup_id == (AM_WATCHED | 7));
    if (d.event.kind() == v1::FORK) known.insert(d.event.fork().child().pid());
    if (d.event.kind() == v1::EXIT) known.erase(d.event.process().pid());
  }
  CHECK(known == GroupMembers(*rig.probe, tree.pid()));
  CHECK(rig.probe->Watches(7));
  CHECK_FALSE(rig.probe->Watches(8));
  rig.probe->Unwatch(7);
  CHECK_FALSE(rig.probe->Watches(7));
  const size_t before = rig.sink.events.size();
  kill(-tree.pid(), SIGKILL);
  REQUIRE(rig.runner.RunUntil([&] { return GroupMembers(*rig.probe, tree.pid()).empty(); }));
  rig.ring->Drain();
  CHECK(rig.sink.events.size() == before);
}

TEST_CASE("a watch ends with the last process of its tree") {
  ProcessRig rig;
  int hold[2];
  REQUIRE(pipe2(hold, O_CLOEXEC) == 0);
  const pid_t pid = fork();
  if (pid == 0) {
    char byte;
    close(hold[1]);
    _exit(static_cast<int>(read(hold[0], &byte, 1)));
  }
  REQUIRE(rig.probe->Watch(pid, 3).ok());
  CHECK(rig.probe->Watches(3));
  close(hold[0]);
  close(hold[1]);
  WaitFor(pid);
  CHECK_FALSE(rig.probe->Watches(3));
  REQUIRE(rig.runner.RunUntil([&] { return rig.sink.Exited(pid); }));
  rig.probe->Unwatch(3);
}

TEST_CASE("what cannot be taken in is refused") {
  ProcessRig rig;
  int moves = 0;
  const auto count = [&](pid_t) {
    ++moves;
    return absl::OkStatus();
  };
  CHECK(absl::IsInvalidArgument(rig.probe->CollectTree(1, count).status()));
  CHECK(absl::IsInvalidArgument(rig.probe->CollectTree(-1, count).status()));
  CHECK(absl::IsFailedPrecondition(rig.probe->CollectTree(2, count).status()));  // kthreadd
  CHECK(absl::IsNotFound(rig.probe->CollectTree(4'000'000, count).status()));
  CHECK(absl::IsFailedPrecondition(rig.probe->CollectTree(getpid(), count).status()));
  CHECK(moves == 0);
}

TEST_CASE("a session's processes are listed with birth, parent and executable") {
  ProcessRig rig;
  int hold[2];
  REQUIRE(pipe2(hold, 0) == 0);
  const pid_t pid = RunIn(*rig.session, [&] {
    dup2(hold[0], 0);
    close(hold[1]);
    return execl("/bin/cat", "cat", nullptr);
  });
  close(hold[0]);
  REQUIRE(rig.runner.RunUntil([&] { return rig.sink.Count(v1::EXEC) == 1; }));
  const std::vector<SeedProcess> seeds = *rig.probe->ListSessionProcesses();
  REQUIRE(seeds.size() == 1);
  CHECK(seeds[0].key.pid == pid);
  CHECK(seeds[0].key.start_ns == rig.sink.events[0].event.process().start_ns());
  CHECK(seeds[0].parent.pid == getpid());
  CHECK(seeds[0].cgroup_id == rig.session->id());
  CHECK(seeds[0].exe == std::filesystem::canonical("/bin/cat"));
  close(hold[1]);
  WaitFor(pid);
}

}  // namespace
}  // namespace agentmon
