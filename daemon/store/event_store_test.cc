#include "daemon/store/event_store.h"

#include <catch2/catch.hpp>

#include "daemon/store/store_fixture.h"

namespace agentmon {

TEST_CASE("a stored event comes back whole and with its number") {
  TempDir dir;
  FakeClock clock;
  auto store = OpenStore(OptionsFor(dir, clock));
  store->UpsertSession(MakeSession("session-1", 1000));
  Event sent = MakeEvent("session-1", 50, v1::RENAME);
  sent.mutable_file()->set_new_path(std::string("/bytes\xff\x00x", 9));
  sent.mutable_parent()->set_pid(1);
  sent.set_count_is(v1::AT_LEAST);
  sent.set_as_asked(true);
  sent.mutable_judgement()->set_decision(v1::AUDIT);
  sent.mutable_judgement()->set_rule("r");
  store->OnEvent(sent);

  const std::vector<Event> stored = QuerySession(*store, "session-1");
  REQUIRE(stored.size() == 1);
  sent.set_seq(1);
  CHECK(stored[0].SerializeAsString() == sent.SerializeAsString());
}

TEST_CASE("numbers go on where they ended after the store was opened again") {
  TempDir dir;
  FakeClock clock;
  for (uint64_t round = 0; round < 3; ++round) {
    auto store = OpenStore(OptionsFor(dir, clock));
    store->UpsertSession(MakeSession("session-1", 1000));
    for (int i = 0; i < 10; ++i) store->OnEvent(MakeEvent("session-1", static_cast<int64_t>(round) * 10 + i));
    const std::vector<Event> stored = QuerySession(*store, "session-1");
    REQUIRE(stored.size() == (round + 1) * 10);
    for (size_t i = 0; i < stored.size(); ++i) CHECK(stored[i].seq() == i + 1);
    CHECK(store->Status().events() == stored.size());
    CHECK(store->Status().state() == "ok");
  }
  CHECK(dir.Names("-wal").empty());
}

TEST_CASE("events come in order of their time, not of their arrival") {
  TempDir dir;
  FakeClock clock;
  auto store = OpenStore(OptionsFor(dir, clock));
  store->UpsertSession(MakeSession("session-1", 1000));
  for (const int64_t wall_ns : {30, 10, 20, 10}) store->OnEvent(MakeEvent("session-1", wall_ns));
  std::vector<std::pair<int64_t, uint64_t>> order;
  for (const Event& event : QuerySession(*store, "session-1"))
    order.emplace_back(event.wall_ns(), event.seq());
  CHECK(order == std::vector<std::pair<int64_t, uint64_t>>{{10, 2}, {10, 4}, {20, 3}, {30, 1}});

  order.clear();
  for (const Event& event : QuerySession(*store, "*", 2)) order.emplace_back(event.wall_ns(), event.seq());
  CHECK(order == std::vector<std::pair<int64_t, uint64_t>>{{20, 3}, {30, 1}});
}

TEST_CASE("a limit gives the newest events, in order, also when they do not fit into memory at once") {
  TempDir dir;
  FakeClock clock;
  auto store = OpenStore(OptionsFor(dir, clock));
  store->UpsertSession(MakeSession("session-1", 1000));
  constexpr uint64_t kEvents = 25'000;
  for (uint64_t i = 1; i <= kEvents; ++i) store->OnEvent(MakeEvent("session-1", static_cast<int64_t>(i)));
  REQUIRE(store->Flush(absl::Seconds(30)));
  for (const uint32_t limit : {1u, 999u, 1000u, 1001u, 10'000u, 10'001u, 24'999u, 25'000u, 30'000u, 0u}) {
    INFO(limit);
    const std::vector<Event> events = QuerySession(*store, "session-1", limit);
    const uint64_t expected = limit == 0 || limit > kEvents ? kEvents : limit;
    REQUIRE(events.size() == expected);
    CHECK(events.front().seq() == kEvents - expected + 1);
    CHECK(events.back().seq() == kEvents);
    CHECK(std::is_sorted(events.begin(), events.end(), [](auto& a, auto& b) { return a.seq() < b.seq(); }));
  }
}

TEST_CASE("a query gives what the filter asks for") {
  TempDir dir;
  FakeClock clock;
  auto store = OpenStore(OptionsFor(dir, clock));
  store->UpsertSession(MakeSession("session-1", 1000));
  for (int i = 1; i <= 20; ++i) {
    Event event = i % 5 == 0 ? MakeDenial("session-1", i)
                             : MakeEvent("session-1", i, i % 2 == 0 ? v1::OPEN : v1::WRITE);
    event.mutable_process()->set_pid(i % 3);
    if (i == 7) event.set_exe("/opt/tool");
    store->OnEvent(event);
  }
  const auto seqs = [&](auto set) {
    QueryOptions options;
    options.filter.set_session("session-1");
    set(options);
    std::vector<uint64_t> result;
    for (const Event& event : QueryAll(*store, options)) result.push_back(event.seq());
    return result;
  };
  using Seqs = std::vector<uint64_t>;
  CHECK(seqs([](auto& o) { o.filter.set_decision(v1::DENY); }) == Seqs{5, 10, 15, 20});
  CHECK(seqs([](auto& o) { o.filter.set_since_ns(18); }) == Seqs{18, 19, 20});
  CHECK(seqs([](auto& o) { o.filter.set_until_ns(3); }) == Seqs{1, 2});
  CHECK(seqs([](auto& o) { o.filter.set_after_seq(18); }) == Seqs{19, 20});
  CHECK(seqs([](auto& o) { o.until_seq = 2; }) == Seqs{1, 2});
  CHECK(seqs([](auto& o) { o.filter.set_exe_glob("/opt/*"); }) == Seqs{7});
  CHECK(seqs([](auto& o) { o.filter.set_path_glob("/home/**/file-1?"), o.filter.set_pid(1); }) ==
        Seqs{10, 13, 16, 19});
  CHECK(seqs([](auto& o) { o.filter.add_kinds(v1::WRITE), o.limit = 2; }) == Seqs{17, 19});
  CHECK(seqs([](auto& o) { o.filter.set_since_ns(5), o.filter.set_until_ns(5); }) == Seqs{});

  QueryOptions bad;
  bad.filter.set_session("session-1");
  bad.filter.set_path_glob("/[");
  CHECK(absl::IsInvalidArgument(store->Query(bad, [](auto) { return true; })));
}

TEST_CASE("a user sees the sessions of that user and nobody else's") {
  TempDir dir;
  FakeClock clock;
  auto store = OpenStore(OptionsFor(dir, clock));
  store->UpsertSession(MakeSession("aaaa-ann", 1000, 1, "build"));
  store->UpsertSession(MakeSession("bbbb-bob", 1001, 2, "build"));
  store->OnEvent(MakeEvent("aaaa-ann", 1));
  store->OnEvent(MakeEvent("bbbb-bob", 2));
  store->OnEvent(MakeEvent("", 3, v1::LOSS));
  store->OnEvent(MakeEvent("undescribed", 4));

  const auto sessions = [&](const std::string& key, Viewer viewer) {
    QueryOptions options;
    options.filter.set_session(key);
    options.viewer = viewer;
    std::vector<std::string> result;
    for (const Event& event : QueryAll(*store, options)) result.push_back(event.session());
    return result;
  };
  using Names = std::vector<std::string>;
  CHECK(sessions("*", 1000) == Names{"aaaa-ann"});
  CHECK(sessions("*", 1001) == Names{"bbbb-bob"});
  CHECK(sessions("*", 4711) == Names{});
  CHECK(sessions("*", std::nullopt) == Names{"aaaa-ann", "bbbb-bob", "", "undescribed"});
  CHECK(sessions("", 1000) == Names{"aaaa-ann"});
  CHECK(sessions("build", 1000) == Names{"aaaa-ann"});
  QueryOptions other;
  other.filter.set_session("bbbb-bob");
  other.viewer = 1000;
  CHECK(absl::IsNotFound(store->Query(other, [](auto) { return true; })));
  CHECK(store->OwnerOf("bbbb-bob") == 1001u);
  CHECK_FALSE(store->OwnerOf("cccc").has_value());
}

TEST_CASE("a session is found by id, name and unique prefix, and a key for several lists them") {
  TempDir dir;
  FakeClock clock;
  auto store = OpenStore(OptionsFor(dir, clock));
  store->UpsertSession(MakeSession("abcdef-1", 1000, 10, "first"));
  store->UpsertSession(MakeSession("abcdef-2", 1000, 20, "twice"));
  store->UpsertSession(MakeSession("xyzxyz-3", 1000, 30, "twice"));
  REQUIRE(store->Flush(absl::Seconds(10)));
  const auto found = [&](const std::string& key) {
    const auto session = store->FindSession(key, 1000);
    return session.ok() ? session->id() : std::string(session.status().message());
  };
  CHECK(found("") == "xyzxyz-3");
  CHECK(found("abcdef-2") == "abcdef-2");
  CHECK(found("first") == "abcdef-1");
  CHECK(found("xyzx") == "xyzxyz-3");
  CHECK(found("abcd") == "'abcd' means several sessions: abcdef-2 (twice), abcdef-1 (first)");
  CHECK(found("twice") == "'twice' means several sessions: xyzxyz-3 (twice), abcdef-2 (twice)");
  CHECK(absl::IsInvalidArgument(store->FindSession("abcd", 1000).status()));
  CHECK(absl::IsNotFound(store->FindSession("xyz", 1000).status()));
  CHECK(absl::IsNotFound(store->FindSession("%", 1000).status()));
}

TEST_CASE("a session's description is replaced and its counts are those of stored events") {
  TempDir dir;
  FakeClock clock;
  auto store = OpenStore(OptionsFor(dir, clock));
  v1::Session session = MakeSession("session-1", 1000);
  store->UpsertSession(session);
  store->UpsertSession(MakeSession("session-2", 1000, 5));
  store->OnEvent(MakeEvent("session-1", 1));
  store->OnEvent(MakeDenial("session-1", 2));
  session.set_ended_ns(99);
  session.set_state(v1::Session::ENDED);
  store->UpsertSession(session);
  REQUIRE(store->Flush(absl::Seconds(10)));

  const auto listed = [&](bool ended, uint32_t limit) {
    std::vector<std::string> ids;
    const std::vector<v1::Session> sessions = store->ListSessions(1000, ended, limit).value();
    for (const v1::Session& one : sessions) ids.push_back(one.id());
    return ids;
  };
  CHECK(listed(false, 0) == std::vector<std::string>{"session-2"});
  CHECK(listed(true, 0) == std::vector<std::string>{"session-2", "session-1"});
  CHECK(listed(true, 1) == std::vector<std::string>{"session-2"});
  const v1::Session stored = store->FindSession("session-1", 1000).value();
  CHECK(stored.ended_ns() == 99);
  CHECK(stored.workspace() == "/home/ann");
  CHECK(stored.events() == 2);
  CHECK(stored.denials() == 1);
  CHECK(store->ListSessions(1001, true, 0).value().empty());
}

TEST_CASE("a full queue never blocks, loses plain events before denials and tells what was lost") {
  TempDir dir;
  FakeClock clock;
  EventStore::Options options = OptionsFor(dir, clock);
  options.queue.events = 100;
  auto store = OpenStore(options);
  store->UpsertSession(MakeSession("session-1", 1000));
  REQUIRE(store->Flush(absl::Seconds(10)));
  OtherConnection other(dir.database());
  other.Exec("BEGIN IMMEDIATE");
  for (int i = 0; i < 150; ++i) store->OnEvent(MakeEvent("session-1", i));
  for (int i = 0; i < 10; ++i) store->OnEvent(MakeDenial("session-1", i));
  CHECK(store->Status().lost() == 60);
  CHECK(store->Status().waiting() == 100);
  other.Exec("COMMIT");
  REQUIRE(store->Flush(absl::Seconds(10)));

  QueryOptions losses;
  losses.filter.set_session("session-1");
  losses.filter.add_kinds(v1::LOSS);
  REQUIRE(Eventually([&] { return QueryAll(*store, losses).size() == 1; }));
  const Event loss = QueryAll(*store, losses)[0];
  CHECK(loss.loss().lost() == 60);
  CHECK(loss.loss().source() == v1::FANOTIFY);
  CHECK(loss.loss().where() == "store");
  QueryOptions denials;
  denials.filter.set_session("session-1");
  denials.filter.set_decision(v1::DENY);
  CHECK(QueryAll(*store, denials).size() == 10);
  CHECK(QuerySession(*store, "session-1").size() == 101);
}

TEST_CASE("subscribers are given each event once, with its number after it was stored") {
  TempDir dir;
  FakeClock clock;
  EventStore::Options options = OptionsFor(dir, clock);
  absl::Mutex mutex;
  std::vector<std::pair<uint64_t, bool>> given;
  options.writer.on_stored = [&](const Event& event, bool repeated) {
    absl::MutexLock lock(&mutex);
    given.emplace_back(event.seq(), repeated);
  };
  auto store = OpenStore(options);
  const auto count = [&] {
    absl::MutexLock lock(&mutex);
    return given.size();
  };
  store->OnEvent(MakeEvent("session-1", 1));
  REQUIRE(Eventually([&] { return count() == 1; }));

  OtherConnection other(dir.database());
  other.Exec("BEGIN IMMEDIATE");
  store->OnEvent(MakeEvent("session-1", 2));
  REQUIRE(Eventually([&] { return count() == 2; }));
  other.Exec("COMMIT");
  REQUIRE(store->Flush(absl::Seconds(10)));
  store->OnEvent(MakeEvent("session-1", 3));
  REQUIRE(Eventually([&] { return count() == 4; }));
  CHECK(given == std::vector<std::pair<uint64_t, bool>>{{1, false}, {0, false}, {2, true}, {3, false}});
}

TEST_CASE("more executables than are numbered in a session still come back with their events") {
  TempDir dir;
  FakeClock clock;
  auto store = OpenStore(OptionsFor(dir, clock));
  store->UpsertSession(MakeSession("session-1", 1000));
  const size_t many = SessionTable::kMaxStrings + 10;
  for (size_t i = 0; i < many; ++i) {
    Event event = MakeEvent("session-1", static_cast<int64_t>(i));
    event.set_exe(absl::StrCat("/exe/", i));
    store->OnEvent(event);
  }
  Event huge = MakeEvent("session-1", static_cast<int64_t>(many));
  huge.set_exe(std::string(3000, 'x'));
  store->OnEvent(huge);
  REQUIRE(store->Flush(absl::Seconds(30)));
  const std::vector<Event> events = QuerySession(*store, "session-1");
  REQUIRE(events.size() == many + 1);
  for (size_t i = 0; i < many; ++i) CHECK(events[i].exe() == absl::StrCat("/exe/", i));
  CHECK(events[many].exe() == huge.exe());
  QueryOptions options;
  options.filter.set_session("*");
  options.filter.set_exe_glob(absl::StrCat("/exe/", many - 1));
  CHECK(QueryAll(*store, options).size() == 1);
}

}  // namespace agentmon
