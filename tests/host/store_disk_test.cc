// A disk that is full or read-only: a small tmpfs in a mount namespace of the test's own. Needs root.
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>

#include "daemon/store/store_fixture.h"

namespace agentmon {
namespace {

class SmallDisk {
 public:
  explicit SmallDisk(const std::string& size) {
    REQUIRE(::geteuid() == 0);
    static const bool is_private =
        ::unshare(CLONE_NEWNS) == 0 && ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
    REQUIRE(is_private);
    REQUIRE(::mount("tmpfs", dir_.path().c_str(), "tmpfs", 0, ("mode=0700,size=" + size).c_str()) == 0);
  }
  ~SmallDisk() { ::umount2(dir_.path().c_str(), MNT_DETACH); }
  void Remount(unsigned long flags, const std::string& size) {
    REQUIRE(::mount("tmpfs", dir_.path().c_str(), "tmpfs", MS_REMOUNT | flags, ("size=" + size).c_str()) ==
            0);
  }
  const TempDir& dir() const { return dir_; }

 private:
  TempDir dir_;
};

// Events until `enough`; OnEvent must not wait for the disk.
template <typename Enough>
uint64_t SendUntil(EventStore& store, Enough enough) {
  uint64_t sent = 0;
  absl::Duration slowest = absl::ZeroDuration();
  const absl::Time until = absl::Now() + absl::Seconds(60);
  while (!enough() && absl::Now() < until) {
    for (int i = 0; i < 100; ++i) {
      const absl::Time start = absl::Now();
      store.OnEvent(MakeEvent("session-1", static_cast<int64_t>(++sent)));
      slowest = std::max(slowest, absl::Now() - start);
    }
    store.Flush(absl::Milliseconds(5));
  }
  CHECK(slowest < absl::Seconds(1));
  return sent;
}

bool SaysTrouble(const EventStore& store, const std::string& what) {
  const std::string state = store.Status().state();
  return state.find("events wait, nothing is written: ") == 0 && state.find(what) != std::string::npos;
}

uint64_t StoredLosses(EventStore& store) {
  QueryOptions query;
  query.filter.set_session("*");
  query.filter.add_kinds(v1::LOSS);
  uint64_t lost = 0;
  for (const Event& event : QueryAll(store, query)) lost += event.loss().lost();
  return lost;
}

}  // namespace

TEST_CASE("on a full disk events wait, loss is counted, and writing goes on when there is room") {
  SmallDisk disk("4m");
  FakeClock clock;
  EventStore::Options options = OptionsFor(disk.dir(), clock);
  options.queue.events = 2000;
  auto store = OpenStore(options);
  store->UpsertSession(MakeSession("session-1", 1000));
  uint64_t sent = SendUntil(*store, [&] { return SaysTrouble(*store, "full"); });
  REQUIRE(SaysTrouble(*store, "full"));
  sent += SendUntil(*store, [&] { return store->Status().lost() > 500; });
  const uint64_t stored = store->Status().events();
  CHECK(stored > 1000);
  CHECK(sent == stored + store->Status().waiting() + store->Status().lost());
  CHECK(QuerySession(*store, "session-1", 10).size() == 10);

  disk.Remount(0, "64m");
  REQUIRE(store->Flush(absl::Seconds(20)));
  REQUIRE(Eventually([&] { return StoredLosses(*store) == store->Status().lost(); }));
  CHECK(store->Status().state() == "ok");
  CHECK(QuerySession(*store, "session-1").size() == sent - store->Status().lost() + 1);
  CHECK(store->Verify()->intact());
  store.reset();
  CHECK(OtherConnection(disk.dir().database()).Text("PRAGMA integrity_check") == "ok");
}

TEST_CASE("a session that ends while the disk is full is known meanwhile, and stored when there is room") {
  SmallDisk disk("4m");
  FakeClock clock;
  EventStore::Options options = OptionsFor(disk.dir(), clock);
  std::atomic<int> written{0};
  options.writer.on_session_ended = [&](const std::string& id) { written += id == "over"; };
  auto store = OpenStore(options);
  store->UpsertSession(MakeSession("over", 1000));
  SendUntil(*store, [&] { return SaysTrouble(*store, "full"); });
  v1::Session over = MakeSession("over", 1000);
  over.set_ended_ns(5);
  store->UpsertSession(over);
  CHECK(store->FindSession("over", 1000)->ended_ns() == 5);
  CHECK(absl::IsNotFound(store->FindSession("over", 1001).status()));
  CHECK(store->ListSessions(1000, false, 0)->empty());
  REQUIRE(store->ListSessions(1000, true, 0)->size() == 1);
  CHECK(written == 0);
  disk.Remount(0, "64m");
  REQUIRE(store->Flush(absl::Seconds(20)));
  CHECK(written == 1);
  CHECK(store->FindSession("over", 1000)->ended_ns() == 5);
}

TEST_CASE("a disk that is full from the start is no reason not to start") {
  SmallDisk disk("4m");
  WriteFile(disk.dir().path() + "/fill", std::string(4 << 20, 'x'));
  FakeClock clock;
  auto store = OpenStore(OptionsFor(disk.dir(), clock));
  store->OnEvent(MakeEvent("session-1", 1));
  CHECK(SaysTrouble(*store, ""));
  CHECK(StateLock::Acquire(disk.dir().path()).ok());
  std::filesystem::remove(disk.dir().path() + "/fill");
  REQUIRE(store->Flush(absl::Seconds(10)));
  CHECK(store->Status().state() == "ok");
  CHECK(QuerySession(*store, "*").size() == 1);
}

TEST_CASE("a read-only state directory: events wait until it can be written") {
  SmallDisk disk("16m");
  FakeClock clock;
  {
    auto store = OpenStore(OptionsFor(disk.dir(), clock));
    store->OnEvent(MakeEvent("session-1", 1));
    REQUIRE(store->Flush(absl::Seconds(10)));
  }
  disk.Remount(MS_RDONLY, "16m");
  absl::StatusOr<StateLock> lock = StateLock::Acquire(disk.dir().path());
  CHECK(lock.ok());
  CHECK(absl::IsFailedPrecondition(StateLock::Acquire(disk.dir().path()).status()));
  auto store = OpenStore(OptionsFor(disk.dir(), clock));
  store->OnEvent(MakeEvent("session-1", 2));
  CHECK(SaysTrouble(*store, ""));
  CHECK_FALSE(store->Flush(absl::Milliseconds(300)));
  CHECK(store->Status().waiting() == 1);
  disk.Remount(0, "16m");
  REQUIRE(store->Flush(absl::Seconds(10)));
  CHECK(store->Status().state() == "ok");
  CHECK(QuerySession(*store, "*").size() == 2);
  CHECK(disk.dir().Names(".corrupt-").empty());
}

TEST_CASE("a disk with room enough knows no trouble") {
  SmallDisk disk("64m");
  FakeClock clock;
  auto store = OpenStore(OptionsFor(disk.dir(), clock));
  const uint64_t sent = SendUntil(*store, [&] { return store->Status().events() > 20'000; });
  REQUIRE(store->Flush(absl::Seconds(10)));
  CHECK(store->Status().lost() == 0);
  CHECK(store->Status().events() == sent);
  CHECK(store->Status().state() == "ok");
}

}  // namespace agentmon
