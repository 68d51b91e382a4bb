#include "daemon/store/retention.h"

#include <catch2/catch.hpp>

#include "daemon/store/store_fixture.h"

namespace agentmon {
namespace {

constexpr uint64_t kMegabyte = 1 << 20;

EventStore::Options SmallOptions(const TempDir& dir, const Clock& clock, uint64_t megabytes) {
  EventStore::Options options = OptionsFor(dir, clock);
  options.writer.retention.max_bytes = megabytes * kMegabyte;
  return options;
}

uint64_t largest_bytes = 0;  // database and log, while Flood ran

// Events of some 300 bytes, waiting for the store so that none is lost.
void Flood(EventStore& store, const std::string& session, int events, bool denied = false,
           int64_t from_ns = 1'000'000) {
  for (int i = 0; i < events; ++i) {
    Event event = denied ? MakeDenial(session, from_ns + i) : MakeEvent(session, from_ns + i);
    event.mutable_file()->set_path(absl::StrCat(std::string(200, 'p'), i));
    store.OnEvent(event);
    if (i % 2000 != 1999) continue;
    REQUIRE(store.Flush(absl::Seconds(30)));
    largest_bytes = std::max(largest_bytes, store.Status().bytes());
  }
  REQUIRE(store.Flush(absl::Seconds(30)));
}

size_t Count(EventStore& store, const std::string& session, bool denied = false) {
  QueryOptions options;
  options.filter.set_session(session);
  if (denied) options.filter.set_decision(v1::DENY);
  return QueryAll(store, options).size();
}

bool VerifiesIntact(EventStore& store) {
  const v1::VerifyResponse answer = store.Verify().value();
  for (const std::string& finding : answer.findings()) WARN(finding);
  return answer.intact();
}

}  // namespace

TEST_CASE("those lose that are not small among their uid's sessions, of uids that are not small") {
  const auto pick = [](const std::vector<PruneCandidate>& candidates) {
    std::vector<int64_t> sessions;
    for (const PruneCandidate& victim : PickVictims(candidates)) sessions.push_back(victim.session);
    return sessions;
  };
  using Sessions = std::vector<int64_t>;
  CHECK(pick({}) == Sessions{});
  CHECK(pick({{1, 1000, 10, 5}}) == Sessions{1});
  // The flood pays, although the others are older.
  CHECK(pick({{1, 1000, 10, 1}, {2, 1000, 1000, 50}, {3, 1000, 10, 2}}) == Sessions{2});
  // All about alike: all of them.
  CHECK(pick({{1, 1000, 9, 1}, {2, 1000, 10, 3}, {3, 1000, 11, 5}}) == Sessions{1, 2, 3});
  // Many small sessions of one uid do not push out the one session of another.
  CHECK(pick({{1, 1000, 10, 7}, {2, 1000, 10, 3}, {3, 1000, 10, 5}, {4, 1001, 6, 1}}) == Sessions{1, 2, 3});
}

TEST_CASE("one session's flood pushes out neither other sessions' events nor any denial") {
  TempDir dir;
  FakeClock clock;
  auto store = OpenStore(SmallOptions(dir, clock, 8));
  store->UpsertSession(MakeSession("quiet-same-uid", 1000));
  store->UpsertSession(MakeSession("quiet-other-uid", 1001));
  store->UpsertSession(MakeSession("flood", 1000));
  Flood(*store, "quiet-same-uid", 100, false, 1);
  Flood(*store, "quiet-other-uid", 100, false, 1);
  Flood(*store, "flood", 50, true, 1);
  largest_bytes = 0;
  Flood(*store, "flood", 60'000);

  CHECK(largest_bytes > 4 * kMegabyte);
  CHECK(largest_bytes < 11 * kMegabyte);
  CHECK(Count(*store, "quiet-same-uid") == 100);
  CHECK(Count(*store, "quiet-other-uid") == 100);
  CHECK(Count(*store, "flood", true) == 50);
  const size_t left = Count(*store, "flood");
  CHECK(left < 30'000);
  CHECK(left > 5'000);
  QueryOptions newest;
  newest.filter.set_session("flood");
  newest.limit = 1;
  CHECK(QueryAll(*store, newest)[0].wall_ns() == 1'000'000 + 59'999);
  CHECK(store->Status().lost() == 0);
  CHECK(store->FindSession("flood", 1000)->events() == 60'050);
  CHECK(store->FindSession("flood", 1000)->denials() == 50);
  CHECK(VerifiesIntact(*store));
  CHECK(store->Verify()->pruned_batches() > 0);

  store.reset();
  CHECK(std::filesystem::file_size(dir.database()) <= 8 * kMegabyte);
}

TEST_CASE("a lower limit holds from the next batch on") {
  TempDir dir;
  FakeClock clock;
  auto store = OpenStore(SmallOptions(dir, clock, 64));
  Flood(*store, "session-1", 20'000);
  REQUIRE(store->Status().events() == 20'000);
  store->SetRetention(2 * kMegabyte, absl::InfiniteDuration());
  store->OnEvent(MakeEvent("session-1", 5'000'000));
  REQUIRE(Eventually([&] { return store->Status().events() < 6000; }));
  CHECK(store->Status().events() > 500);
  store.reset();
  auto idle = SmallOptions(dir, clock, 2);
  idle.writer.idle_after = absl::Milliseconds(1);
  store = OpenStore(idle);
  CHECK(Eventually([&] { return std::filesystem::file_size(dir.database()) <= 2 * kMegabyte; }));
  CHECK(VerifiesIntact(*store));
}

TEST_CASE("a flood of denials costs the session's own denials first") {
  TempDir dir;
  FakeClock clock;
  auto store = OpenStore(SmallOptions(dir, clock, 8));
  store->UpsertSession(MakeSession("quiet", 1000));
  store->UpsertSession(MakeSession("flood", 1000));
  Flood(*store, "quiet", 100, false, 1);
  Flood(*store, "quiet", 100, true, 1);
  Flood(*store, "flood", 40'000, true);
  CHECK(Count(*store, "quiet") == 200);
  CHECK(Count(*store, "quiet", true) == 100);
  CHECK(Count(*store, "flood") < 15'000);
  CHECK(Count(*store, "flood") > 1'000);
  CHECK(VerifiesIntact(*store));
}

TEST_CASE("many sessions that are over the limit together lose their oldest events in turn") {
  TempDir dir;
  FakeClock clock;
  auto store = OpenStore(SmallOptions(dir, clock, 8));
  for (int n = 0; n < 20; ++n) {
    const std::string id = absl::StrCat("session-", 100 + n);
    store->UpsertSession(MakeSession(id, 1000, n));
    Flood(*store, id, 2500, false, 1 + n * 10'000);
  }
  CHECK(Count(*store, "session-119") == 2500);
  CHECK(Count(*store, "session-100") < 2500);
  size_t sum = 0;
  for (int n = 0; n < 20; ++n) sum += Count(*store, absl::StrCat("session-", 100 + n));
  CHECK(sum > 10'000);
  CHECK(sum < 30'000);
  CHECK(VerifiesIntact(*store));
}

TEST_CASE("sessions that wrote at the same time are pruned side by side") {
  TempDir dir;
  FakeClock clock;
  auto store = OpenStore(SmallOptions(dir, clock, 8));
  for (int i = 0; i < 40'000; ++i) {
    Event event = MakeEvent(absl::StrCat("session-", 100 + i % 10), 1000 + i);
    event.mutable_file()->set_path(std::string(200, 'p'));
    store->OnEvent(event);
    if (i % 2000 == 1999) REQUIRE(store->Flush(absl::Seconds(30)));
  }
  for (int n = 0; n < 10; ++n) {
    const size_t left = Count(*store, absl::StrCat("session-", 100 + n));
    CHECK(left > 500);
    CHECK(left < 4000);
  }
  CHECK(VerifiesIntact(*store));
}

TEST_CASE("events go when they are too old, denials later, and the chain stays whole") {
  TempDir dir;
  FakeClock clock;
  EventStore::Options options = OptionsFor(dir, clock);
  options.writer.idle_after = absl::Milliseconds(1);
  options.writer.retention.max_age = absl::Hours(10);
  options.writer.retention.kept_max_age = absl::Hours(100);
  auto store = OpenStore(options);
  v1::Session session = MakeSession("session-1", 1000);
  store->UpsertSession(session);
  const auto now_ns = [&] { return absl::ToUnixNanos(clock.Wall()); };
  for (int i = 0; i < 100; ++i) {
    store->OnEvent(MakeEvent("session-1", now_ns() + i));
    store->OnEvent(MakeDenial("session-1", now_ns() + i));
    if (i % 10 == 9) REQUIRE(store->Flush(absl::Seconds(10)));
  }
  // A restart looks at once; the fake clock is not to be moved while the store's thread reads it.
  const auto after = [&](absl::Duration by) {
    store.reset();
    clock.Advance(by);
    store = OpenStore(options);
  };
  after(absl::Hours(5));
  CHECK(Count(*store, "session-1") == 200);
  after(absl::Hours(6));
  REQUIRE(Eventually([&] { return Count(*store, "session-1") == 100; }));
  CHECK(Count(*store, "session-1", true) == 100);
  CHECK(VerifiesIntact(*store));
  CHECK(store->FindSession("session-1", 1000)->events() == 200);

  session.set_ended_ns(now_ns());
  store->UpsertSession(session);
  REQUIRE(store->Flush(absl::Seconds(10)));
  after(absl::Hours(100));
  REQUIRE(Eventually([&] { return absl::IsNotFound(store->FindSession("session-1", 1000).status()); }));
  CHECK(store->Status().events() == 0);
  CHECK(VerifiesIntact(*store));
  CHECK(store->Verify()->pruned_batches() >= 10);
}

TEST_CASE("rows of pruned batches are folded into the anchor and the chain starts there") {
  TempDir dir;
  FakeClock clock;
  EventStore::Options options = OptionsFor(dir, clock);
  options.writer.idle_after = absl::Milliseconds(1);
  options.writer.retention.max_age = absl::Hours(1);
  options.writer.retention.max_pruned_batches = 5;
  auto store = OpenStore(options);
  for (int i = 0; i < 30; ++i) {
    store->OnEvent(MakeEvent("session-1", absl::ToUnixNanos(clock.Wall()) + i));
    REQUIRE(store->Flush(absl::Seconds(10)));
  }
  const uint64_t batches = store->Verify()->batches();
  REQUIRE(batches == 30);
  store.reset();
  clock.Advance(absl::Hours(2));
  store = OpenStore(options);
  REQUIRE(Eventually(
      [&] { return OtherConnection(dir.database()).Number("SELECT count(*) FROM batches") == 5; }));
  store->OnEvent(MakeEvent("session-1", absl::ToUnixNanos(clock.Wall())));
  REQUIRE(store->Flush(absl::Seconds(10)));
  const v1::VerifyResponse answer = store->Verify().value();
  CHECK(answer.intact());
  CHECK(answer.pruned_batches() == 30);
  CHECK(answer.batches() == 6);
  CHECK(QuerySession(*store, "session-1")[0].seq() == 31);
  store.reset();
  OtherConnection(dir.database()).Exec("UPDATE anchor SET hash = zeroblob(32)");
  store = OpenStore(options);
  CHECK_FALSE(store->Verify()->intact());
}

TEST_CASE("a row that somebody put into a pruned batch is found") {
  TempDir dir;
  FakeClock clock;
  EventStore::Options options = OptionsFor(dir, clock);
  options.writer.idle_after = absl::Milliseconds(1);
  options.writer.retention.max_age = absl::Hours(1);
  auto store = OpenStore(options);
  store->OnEvent(MakeEvent("session-1", 5));
  store->OnEvent(MakeDenial("session-1", 6));
  REQUIRE(store->Flush(absl::Seconds(10)));
  store.reset();
  clock.Advance(absl::Hours(2));
  store = OpenStore(options);
  REQUIRE(Eventually([&] { return store->Status().events() == 1; }));
  store.reset();
  OtherConnection(dir.database())
      .Exec("INSERT INTO events SELECT 1, session, 7200000000005, 10, pid, exe, 0, 0, data FROM events");
  store = OpenStore(options);
  const v1::VerifyResponse answer = store->Verify().value();
  CHECK_FALSE(answer.intact());
  CHECK(answer.findings_size() == 1);
}

}  // namespace agentmon
