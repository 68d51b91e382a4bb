// Others hold the database, the daemon is killed, a reader takes its time.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <thread>

#include "daemon/store/store_fixture.h"

namespace agentmon {
namespace {

uint64_t LogBytes(const TempDir& dir) {
  std::error_code error;
  const uint64_t size = std::filesystem::file_size(dir.database() + "-wal", error);
  return error ? 0 : size;
}

}  // namespace

TEST_CASE("while others lock the database events are taken at once, and written when it is free") {
  for (const char* lock : {"BEGIN EXCLUSIVE", "BEGIN IMMEDIATE"}) {
    INFO(lock);
    TempDir dir;
    FakeClock clock;
    auto store = OpenStore(OptionsFor(dir, clock));
    store->UpsertSession(MakeSession("session-1", 1000));
    REQUIRE(store->Flush(absl::Seconds(10)));
    OtherConnection other(dir.database());
    other.Exec(lock);
    const absl::Time start = absl::Now();
    for (int i = 0; i < 10'000; ++i) store->OnEvent(MakeEvent("session-1", i));
    CHECK(absl::Now() - start < absl::Seconds(2));
    REQUIRE(Eventually([&] {
      return store->Status().state() == "events wait, nothing is written: database: database is locked";
    }));
    CHECK(store->Status().waiting() == 10'000);
    CHECK_FALSE(store->Flush(absl::Milliseconds(10)));
    CHECK(QuerySession(*store, "session-1").empty());  // reading goes on
    other.Exec("COMMIT");
    REQUIRE(store->Flush(absl::Seconds(10)));
    CHECK(store->Status().state() == "ok");
    CHECK(store->Status().lost() == 0);
    CHECK(QuerySession(*store, "session-1").size() == 10'000);
  }
}

TEST_CASE("a database that is locked at start is written later") {
  TempDir dir;
  FakeClock clock;
  OpenStore(OptionsFor(dir, clock)).reset();
  auto other = std::make_unique<OtherConnection>(dir.database());
  other->Exec("PRAGMA locking_mode=EXCLUSIVE; BEGIN EXCLUSIVE; PRAGMA user_version");
  auto store = OpenStore(OptionsFor(dir, clock));
  store->OnEvent(MakeEvent("session-1", 1));
  CHECK(store->Status().state().find("events wait, nothing is written: ") == 0);
  CHECK(store->Query(QueryOptions(), [](auto) { return true; }).code() == absl::StatusCode::kUnavailable);
  other.reset();
  REQUIRE(store->Flush(absl::Seconds(10)));
  CHECK(QuerySession(*store, "*").size() == 1);
}

TEST_CASE("what cannot be written before the daemon ends is given up in time and counted") {
  TempDir dir;
  FakeClock clock;
  auto store = OpenStore(OptionsFor(dir, clock));
  REQUIRE(store->Flush(absl::Seconds(10)));
  OtherConnection other(dir.database());
  other.Exec("BEGIN IMMEDIATE");
  for (int i = 0; i < 10; ++i) store->OnEvent(MakeEvent("session-1", i));
  const absl::Time start = absl::Now();
  store->Close(absl::Milliseconds(300));
  CHECK(absl::Now() - start < absl::Seconds(5));
  CHECK(store->Status().lost() == 10);
  store->OnEvent(MakeEvent("session-1", 11));
  CHECK(store->Status().lost() == 11);
}

TEST_CASE("closing writes what waits and leaves no log") {
  TempDir dir;
  FakeClock clock;
  auto store = OpenStore(OptionsFor(dir, clock));
  for (int i = 0; i < 5000; ++i) store->OnEvent(MakeEvent("session-1", i));
  store->Close(absl::Seconds(10));
  CHECK(dir.Names("agentmon.db") == std::vector<std::string>{"agentmon.db"});
  CHECK(OtherConnection(dir.database()).Number("SELECT count(*) FROM events") == 5000);
}

TEST_CASE("a daemon that is killed again and again while it writes leaves a sound database") {
  TempDir dir;
  FakeClock clock;
  for (int round = 0; round < 8; ++round) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // also where a check below ends the test
      auto store = EventStore::Open(OptionsFor(dir, clock));
      if (!store.ok()) ::_exit(1);
      for (int64_t i = 0;; ++i) {
        (*store)->OnEvent(MakeEvent("session-1", i));
        if (i % 50 == 49) (*store)->Flush(absl::Seconds(1));
      }
    }
    // Killed at another place each time, but only once it has written something.
    const int64_t before = std::filesystem::exists(dir.database()) && round > 0
                               ? OtherConnection(dir.database()).Number("SELECT max(last_seq) FROM batches")
                               : 0;
    REQUIRE(Eventually([&] { return LogBytes(dir) > 0; }));
    REQUIRE(Eventually([&] {
      return round == 0 ? LogBytes(dir) > 200'000
                        : OtherConnection(dir.database()).Number("SELECT max(last_seq) FROM batches") >
                              before + 100 * round;
    }));
    REQUIRE(::kill(child, SIGKILL) == 0);
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    REQUIRE(WIFSIGNALED(status));
    CHECK(OtherConnection(dir.database()).Text("PRAGMA integrity_check") == "ok");
  }
  auto store = OpenStore(OptionsFor(dir, clock));
  CHECK(store->Status().state() == "ok");
  CHECK(store->Status().events() > 1000);
  const v1::VerifyResponse answer = store->Verify().value();
  for (const std::string& finding : answer.findings()) WARN(finding);
  CHECK(answer.intact());
  CHECK(answer.events() == store->Status().events());
  CHECK(dir.Names(".corrupt-").empty());
}

TEST_CASE("a client that reads slowly does not keep the log from being folded in") {
  TempDir dir;
  FakeClock clock;
  EventStore::Options options = OptionsFor(dir, clock);
  options.writer.idle_after = absl::Milliseconds(1);
  auto store = OpenStore(options);
  for (int i = 0; i < 5000; ++i) store->OnEvent(MakeEvent("session-1", i));
  REQUIRE(store->Flush(absl::Seconds(10)));
  QueryOptions query;
  query.filter.set_session("*");
  size_t chunks = 0, events = 0;
  const absl::Status status = store->Query(query, [&](std::vector<Event> chunk) {
    events += chunk.size();
    if (++chunks != 2) return true;
    // In the middle of the query: more is written, and the log goes to nothing all the same.
    for (int i = 0; i < 5000; ++i) store->OnEvent(MakeEvent("session-1", 10'000 + i));
    REQUIRE(store->Flush(absl::Seconds(10)));
    CHECK(Eventually([&] { return LogBytes(dir) == 0; }));
    return true;
  });
  CHECK(status.ok());
  CHECK(events == 5000);  // and the query ends where it started, whatever is written meanwhile
}

TEST_CASE("a program that reads without end stops the log from growing without end") {
  TempDir dir;
  FakeClock clock;
  EventStore::Options options = OptionsFor(dir, clock);
  options.writer.max_log_bytes = 2 << 20;
  auto store = OpenStore(options);
  store->OnEvent(MakeEvent("session-1", 1));
  REQUIRE(store->Flush(absl::Seconds(10)));
  OtherConnection other(dir.database());
  other.Exec("BEGIN; SELECT count(*) FROM events");
  uint64_t sent = 1;
  REQUIRE(Eventually([&] {
    for (int i = 0; i < 200; ++i) store->OnEvent(MakeEvent("session-1", static_cast<int64_t>(++sent)));
    store->Flush(absl::Milliseconds(50));
    return store->Status().state().find("another program reads the database for too long") !=
           std::string::npos;
  }));
  CHECK(LogBytes(dir) < 8 << 20);
  other.Exec("COMMIT");
  REQUIRE(store->Flush(absl::Seconds(10)));
  CHECK(store->Status().lost() == 0);
  CHECK(store->Status().events() == sent);
}

TEST_CASE("queries run beside the writer and each other") {
  TempDir dir;
  FakeClock clock;
  auto store = OpenStore(OptionsFor(dir, clock));
  store->UpsertSession(MakeSession("session-1", 1000));
  REQUIRE(store->Flush(absl::Seconds(10)));
  std::atomic<bool> done = false;
  std::atomic<int> bad = 0, queries = 0;
  std::vector<std::thread> readers;
  for (int n = 0; n < 3; ++n) {
    readers.emplace_back([&] {
      while (!done) {
        QueryOptions query;
        query.filter.set_session("session-1");
        uint64_t last = 0;
        const absl::Status status = store->Query(query, [&](std::vector<Event> chunk) {
          for (const Event& event : chunk) bad += event.seq() != ++last;
          return true;
        });
        bad += !status.ok();
        bad += !store->ListSessions(1000, true, 10).ok();
        store->Status();
        ++queries;
      }
    });
  }
  for (int i = 0; i < 20'000; ++i) {
    store->OnEvent(MakeEvent("session-1", i));
    if (i % 1000 == 0) store->Flush(absl::Seconds(10));
  }
  REQUIRE(Eventually([&] { return queries > 10; }));
  done = true;
  for (std::thread& reader : readers) reader.join();
  CHECK(bad == 0);
}

TEST_CASE("a query can be cancelled and stopped") {
  TempDir dir;
  FakeClock clock;
  auto store = OpenStore(OptionsFor(dir, clock));
  for (int i = 0; i < 5000; ++i) store->OnEvent(MakeEvent("session-1", i));
  REQUIRE(store->Flush(absl::Seconds(10)));
  QueryOptions query;
  query.filter.set_session("*");
  int chunks = 0;
  CHECK(store->Query(query, [&](auto) { return ++chunks < 2; }).ok());
  CHECK(chunks == 2);
  query.cancelled = [] { return true; };
  CHECK(absl::IsCancelled(store->Query(query, [](auto) { return true; })));
}

TEST_CASE("the bytes that wait are bounded, not only the events") {
  TempDir dir;
  FakeClock clock;
  EventStore::Options options = OptionsFor(dir, clock);
  options.queue.bytes = 1 << 20;
  auto store = OpenStore(options);
  REQUIRE(store->Flush(absl::Seconds(10)));
  OtherConnection other(dir.database());
  other.Exec("BEGIN IMMEDIATE");
  Event event = MakeEvent("session-1", 1);
  event.mutable_file()->set_path(std::string(100'000, 'p'));
  for (int i = 0; i < 20; ++i) store->OnEvent(event);
  CHECK(store->Status().waiting() < 11);
  CHECK(store->Status().lost() + store->Status().waiting() == 20);
  other.Exec("COMMIT");
}

TEST_CASE("an idle store does not wake up") {
  TempDir dir;
  FakeClock clock;
  EventStore::Options options = OptionsFor(dir, clock);
  options.writer.idle_after = absl::Milliseconds(1);
  std::atomic<pid_t> writer = 0;
  options.writer.on_stored = [&](const Event&, bool) { writer = ::gettid(); };
  auto store = OpenStore(options);
  store->OnEvent(MakeEvent("session-1", 1));
  REQUIRE(store->Flush(absl::Seconds(10)));
  REQUIRE(Eventually([&] { return LogBytes(dir) == 0; }));
  const auto switches = [&] {
    const std::string status = ReadFile(absl::StrCat("/proc/self/task/", writer.load(), "/status"));
    const size_t at = status.find("voluntary_ctxt_switches:");
    return std::stoull(status.substr(at + 24));
  };
  // The idle work itself may still be ending; then nothing happens for half a second.
  uint64_t before = 0;
  CHECK(Eventually([&] {
    before = switches();
    absl::SleepFor(absl::Milliseconds(500));
    return switches() == before;
  }));
}

}  // namespace agentmon
