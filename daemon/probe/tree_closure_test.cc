#include "daemon/probe/tree_closure.h"

#include <algorithm>
#include <catch2/catch.hpp>

namespace agentmon {
namespace {

ProcessKey Key(int pid, uint64_t start = 0) { return {pid, start == 0 ? static_cast<uint64_t>(pid) : start}; }

am_task Task(ProcessKey key, ProcessKey parent, bool alive = true) {
  am_task task{};
  task.key.pid = static_cast<am_u32>(key.pid);
  task.key.start_ns = key.start_ns;
  task.parent.pid = static_cast<am_u32>(parent.pid);
  task.parent.start_ns = parent.start_ns;
  task.alive = alive;
  return task;
}

const ProcessKey kInit = Key(1), kRoot = Key(100);

std::vector<int> Pids(const std::vector<ProcessKey>& keys) {
  std::vector<int> pids;
  for (const ProcessKey& key : keys) pids.push_back(key.pid);
  std::sort(pids.begin(), pids.end());
  return pids;
}

TEST_CASE("a tree is its root and all that descend from it, and nobody else") {
  TreeClosure closure(kRoot);
  closure.AddSnapshot({Task(kInit, Key(0)), Task(kRoot, kInit), Task(Key(101), kRoot),
                       Task(Key(102), Key(101)), Task(Key(200), kInit)});
  CHECK(Pids(closure.ToMove()) == std::vector<int>{100, 101, 102});
  CHECK(closure.ToMove().empty());
  CHECK_FALSE(closure.Unsettled());
}

TEST_CASE("an orphan belongs by the edge that its parent's exit left") {
  TreeClosure closure(kRoot);
  closure.AddSnapshot({Task(kRoot, kInit), Task(Key(102), kInit)});  // 101 between them is gone
  closure.AddEdge(Key(102), Key(101));
  CHECK(Pids(closure.ToMove()) == std::vector<int>{100});
  closure.AddEdge(Key(101), kRoot);
  CHECK(Pids(closure.ToMove()) == std::vector<int>{102});
}

TEST_CASE("a child that the snapshot missed is waited for until the next one") {
  TreeClosure closure(kRoot);
  closure.AddSnapshot({Task(kRoot, kInit)});
  closure.AddBirth(Key(50, 500), kRoot);
  CHECK(Pids(closure.ToMove()) == std::vector<int>{100});
  CHECK(closure.Unsettled());
  SECTION("alive") {
    closure.AddSnapshot({Task(kRoot, kInit), Task(Key(50, 500), kInit)});
    CHECK(Pids(closure.ToMove()) == std::vector<int>{50});
  }
  SECTION("dead, its pid taken by somebody else") {
    closure.AddSnapshot({Task(kRoot, kInit), Task(Key(50, 900), kInit)});
    CHECK(closure.ToMove().empty());
  }
  CHECK_FALSE(closure.Unsettled());
}

TEST_CASE("who is born after the parent was moved is inside, also in the next generation") {
  TreeClosure closure(kRoot);
  closure.AddSnapshot({Task(kRoot, kInit)});
  closure.ToMove();
  closure.SetMoved(kRoot, 1000);
  closure.AddBirth(Key(101, 999), kRoot);
  closure.AddBirth(Key(102, 1001), kRoot);
  closure.AddBirth(Key(103, 1002), Key(102, 1001));
  closure.AddSnapshot({Task(kRoot, kInit), Task(Key(101, 999), kRoot), Task(Key(102, 1001), kRoot),
                       Task(Key(103, 1002), Key(102, 1001))});
  CHECK(Pids(closure.ToMove()) == std::vector<int>{101});
  CHECK(Pids(closure.Alive()) == std::vector<int>{100, 101, 102, 103});
}

TEST_CASE("a later parent is no birth") {
  // 103 was made by 102, which was not inside, and came to the moved root by 102's death.
  TreeClosure closure(kRoot);
  closure.AddSnapshot({Task(kRoot, kInit)});
  closure.ToMove();
  closure.SetMoved(kRoot, 1000);
  closure.AddBirth(Key(103, 1500), Key(102));
  closure.AddBirth(Key(103, 1500), kRoot);  // what the exit hook says of a process born meanwhile
  closure.AddSnapshot({Task(kRoot, kInit), Task(Key(103, 1500), kRoot)});
  CHECK(Pids(closure.ToMove()) == std::vector<int>{103});
}

TEST_CASE("a zombie is not moved and its children are") {
  TreeClosure closure(kRoot);
  closure.AddSnapshot({Task(kRoot, kInit), Task(Key(101), kRoot, false), Task(Key(102), Key(101))});
  CHECK(Pids(closure.ToMove()) == std::vector<int>{100, 102});
}

}  // namespace
}  // namespace agentmon
