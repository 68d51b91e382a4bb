#include "daemon/attribution/process_tree.h"

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"

namespace agentmon {
namespace {

Decoded Fork(ProcessKey parent, ProcessKey child, int64_t at = 0) {
  Decoded d;
  d.event.set_kind(v1::FORK);
  d.event.set_boot_ns(at != 0 ? at : static_cast<int64_t>(child.start_ns));
  d.event.set_uid(1000);
  parent.To(d.event.mutable_process());
  child.To(d.event.mutable_fork()->mutable_child());
  d.cgroup_id = 77;
  return d;
}

Decoded Exec(ProcessKey key, ProcessKey parent, const std::string& exe, int64_t at) {
  Decoded d;
  d.event.set_kind(v1::EXEC);
  d.event.set_boot_ns(at);
  d.event.set_uid(1000);
  d.event.set_exe(exe);
  key.To(d.event.mutable_process());
  parent.To(d.event.mutable_parent());
  d.cgroup_id = 77;
  return d;
}

Decoded Exit(ProcessKey key, int64_t at) {
  Decoded d;
  d.event.set_kind(v1::EXIT);
  d.event.set_boot_ns(at);
  key.To(d.event.mutable_process());
  d.cgroup_id = 77;
  return d;
}

Event Stamped(ProcessTree& tree, pid_t pid, int64_t at, uint32_t tid = 0) {
  Event event;
  event.set_kind(v1::CREATE);
  event.set_boot_ns(at);
  event.mutable_process()->set_pid(pid);
  tree.Stamp(&event, tid);
  return event;
}

// A directory in place of /proc, empty unless the test fills it.
struct FakeProc {
  std::string root = [] {
    char name[] = "/tmp/agentmon-test-XXXXXX";
    return std::string(mkdtemp(name));
  }();
  ~FakeProc() { std::filesystem::remove_all(root); }
  void AddThread(pid_t process, pid_t tid) const {
    const std::string task = absl::StrCat(root, "/", process, "/task/", tid);
    std::filesystem::create_directories(task);
    std::filesystem::create_directories(absl::StrCat(root, "/", tid));
    std::ofstream(absl::StrCat(root, "/", tid, "/status"))
        << "Tgid:\t" << process << "\nUid:\t1000\t0\t0\t0\n";
    std::ofstream(absl::StrCat(root, "/", process, "/status"))
        << "Tgid:\t" << process << "\nUid:\t1000\t0\t0\t0\n";
  }
};

const ProcessKey kShell{100, 1000}, kChild{101, 2000}, kGrand{102, 3000};

TEST_CASE("a forked process has its parent's executable until it executes its own") {
  FakeProc proc;
  ProcessTree tree(ProcFs(proc.root), {});
  tree.Learn(Exec(kShell, {1, 1}, "/bin/sh", 1500));
  tree.Learn(Fork(kShell, kChild));
  CHECK(Stamped(tree, 101, 2100).exe() == "/bin/sh");
  tree.Learn(Exec(kChild, kShell, "/bin/ls", 2200));
  const Event event = Stamped(tree, 101, 2300);
  CHECK(event.exe() == "/bin/ls");
  CHECK(event.process().start_ns() == 2000);
  CHECK(event.parent().pid() == 100);
  CHECK(event.parent().start_ns() == 1000);
  CHECK(event.uid() == 1000);
}

TEST_CASE("the parent at birth stays when another one takes over") {
  FakeProc proc;
  ProcessTree tree(ProcFs(proc.root), {});
  tree.Learn(Fork(kShell, kChild));
  tree.Learn(Fork(kChild, kGrand));
  tree.Learn(Exit(kChild, 3100));
  Decoded exec = Exec(kGrand, {1, 1}, "/bin/daemon", 3200);  // init is its parent now
  tree.Learn(exec);
  tree.Stamp(&exec.event, 0);
  CHECK(exec.event.parent().pid() == 101);
  CHECK(exec.event.parent().start_ns() == 2000);
}

TEST_CASE("a late record finds the process that had the pid then") {
  FakeProc proc;
  ProcessTree tree(ProcFs(proc.root), {});
  tree.Learn(Exec(kChild, kShell, "/bin/old", 2100));
  tree.Learn(Exit(kChild, 2500));
  CHECK(Stamped(tree, 101, 2400).exe() == "/bin/old");
  tree.Learn(Fork(kShell, {101, 5000}));
  tree.Learn(Exec({101, 5000}, kShell, "/bin/new", 5100));
  CHECK(Stamped(tree, 101, 2400).exe() == "/bin/old");
  CHECK(Stamped(tree, 101, 2400).process().start_ns() == 2000);
  CHECK(Stamped(tree, 101, 5200).exe() == "/bin/new");
}

TEST_CASE("an event that knows its process's birth is not given to a successor") {
  FakeProc proc;
  ProcessTree tree(ProcFs(proc.root), {});
  tree.Learn(Exec(kChild, kShell, "/bin/old", 2100));
  Event event;
  event.set_boot_ns(9000);
  ProcessKey{101, 8000}.To(event.mutable_process());
  tree.Stamp(&event, 0);
  CHECK(event.exe().empty());
  CHECK(event.process().start_ns() == 8000);
}

TEST_CASE("a read that was noticed after its process's end is set before it, other sources are left alone") {
  ProcessTree tree;
  tree.Learn(Fork({1, 10}, {20, 100}));
  tree.Learn(Exit({20, 100}, 500));
  tree.Learn(Fork({1, 10}, {21, 110}));
  const auto stamped = [&](pid_t pid, v1::Source source) {
    Event event;
    event.set_kind(v1::OPEN);
    event.set_source(source);
    event.set_boot_ns(700);
    event.set_wall_ns(5'000'700);
    event.mutable_process()->set_pid(pid);
    tree.Stamp(&event, static_cast<uint32_t>(pid));
    return event;
  };
  CHECK(stamped(20, v1::FANOTIFY).boot_ns() == 499);
  CHECK(stamped(20, v1::FANOTIFY).wall_ns() == 5'000'499);
  CHECK(stamped(20, v1::NOTIFY).boot_ns() == 700);
  CHECK(stamped(21, v1::FANOTIFY).boot_ns() == 700);
  // The number was given to another process meanwhile: that one runs.
  tree.Learn(Fork({1, 10}, {20, 600}));
  CHECK(stamped(20, v1::FANOTIFY).boot_ns() == 700);
}

TEST_CASE("what has ended is kept for a bounded number and time") {
  FakeProc proc;
  ProcessTree::Options options;
  options.max_exited = 10;
  options.keep_exited = absl::Nanoseconds(1000);
  ProcessTree tree(ProcFs(proc.root), options);
  for (int i = 0; i < 50; ++i) {
    const ProcessKey key{200 + i, static_cast<uint64_t>(10'000 + i)};
    tree.Learn(Fork(kShell, key));
    tree.Learn(Exit(key, 10'000 + i));
  }
  CHECK(tree.exited() == 10);
  CHECK(tree.live() == 1);
  CHECK(tree.Find(249, 0, 20'000) != nullptr);
  CHECK(tree.Find(200, 0, 20'000) == nullptr);
  tree.Learn(Exit({300, 20'000}, 20'000));
  CHECK(tree.exited() == 1);
}

TEST_CASE("more processes than are remembered do no harm") {
  FakeProc proc;
  ProcessTree::Options options;
  options.max_live = 3;
  ProcessTree tree(ProcFs(proc.root), options);
  for (int i = 0; i < 10; ++i) tree.Learn(Fork(kShell, {200 + i, static_cast<uint64_t>(5000 + i)}));
  CHECK(tree.live() == 3);
  for (int i = 0; i < 10; ++i) tree.Learn(Exit({200 + i, static_cast<uint64_t>(5000 + i)}, 6000));
  CHECK(tree.live() == 1);
}

TEST_CASE("seeds complete the tree and do not overrule records") {
  FakeProc proc;
  ProcessTree tree(ProcFs(proc.root), {});
  tree.Seed({kShell, {1, 1}, 77, 1000, "/bin/bash"});
  CHECK(Stamped(tree, 100, 1100).exe() == "/bin/bash");
  CHECK(Stamped(tree, 100, 1100).uid() == 1000);
  tree.Learn(Fork(kShell, kChild));
  tree.Learn(Exec(kChild, kShell, "/bin/ls", 2100));
  tree.Seed({kChild, {1, 1}, 77, 1000, "/bin/stale"});
  CHECK(Stamped(tree, 101, 2200).exe() == "/bin/ls");
  CHECK(Stamped(tree, 101, 2200).parent().pid() == 100);
  tree.Seed({{101, 1500}, {1, 1}, 77, 1000, "/bin/older"});
  CHECK(Stamped(tree, 101, 2200).exe() == "/bin/ls");
}

TEST_CASE("a thread is its process") {
  FakeProc proc;
  ProcessTree tree(ProcFs(proc.root), {});
  tree.Learn(Exec(kChild, kShell, "/bin/threads", 2100));
  proc.AddThread(101, 150);
  Event event = Stamped(tree, 0, 2200, 150);
  CHECK(event.process().pid() == 101);
  CHECK(event.process().start_ns() == 2000);
  CHECK(event.exe() == "/bin/threads");
  // Gone meanwhile: still who it was.
  std::filesystem::remove_all(proc.root + "/150");
  std::filesystem::remove_all(proc.root + "/101");
  CHECK(Stamped(tree, 0, 2300, 150).process().pid() == 101);
  // The number is a process's now.
  tree.Learn(Fork(kChild, {150, 4000}));
  CHECK(Stamped(tree, 0, 4100, 150).process().pid() == 150);
}

TEST_CASE("an unknown process is looked up once and completed by its first record") {
  FakeProc proc;
  ProcessTree tree(ProcFs(proc.root), {});
  proc.AddThread(101, 101);
  Event event = Stamped(tree, 101, 2050);
  CHECK(event.uid() == 1000);
  CHECK(event.process().start_ns() == 0);
  tree.Learn(Exec(kChild, kShell, "/bin/ls", 2100));
  CHECK(Stamped(tree, 101, 2200).process().start_ns() == 2000);
  CHECK(tree.live() == 1);
  CHECK(tree.exited() == 0);
}

TEST_CASE("a session that is forgotten leaves nothing behind") {
  FakeProc proc;
  ProcessTree tree(ProcFs(proc.root), {});
  tree.Learn(Fork(kShell, kChild));
  tree.ForgetSession(77);
  CHECK(tree.live() == 0);
}

}  // namespace
}  // namespace agentmon
